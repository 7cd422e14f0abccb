# frozen_string_literal: true

# The specs of the wire run a second time through the server's own proxy, with FASTRACK_FRONT=http1: a promise that holds without the proxy
# holds with it. docs/proxy.md has a table of the differences, by the same words.
module Front
  PROXIED = ENV.fetch("FASTRACK_FRONT", "") == "http1"

  # Examples that the second run leaves out: for each reason the files, with a pattern of the examples' names where it is not the whole file.
  DIFFERENT = {}.freeze

  module_function

  # Options of a server. Compress makes a server start its proxy.
  def options(given) = PROXIED ? { "Compress" => true, **given } : given

  # @param metadata [Hash] of an example
  # @return [Symbol, nil] why the second run leaves it out
  def difference(metadata)
    file = metadata[:file_path].delete_prefix("./").delete_prefix("spec/").delete_suffix("_spec.rb")
    DIFFERENT.find { |_, files| files.key?(file) && metadata[:full_description].match?(files[file] || //) }&.first
  end
end
