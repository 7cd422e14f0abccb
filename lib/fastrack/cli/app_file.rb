# frozen_string_literal: true

require "rack"
require_relative "../error"
require_relative "../text"
require_relative "help"

module Fastrack
  # An app that is still to be loaded: config.ru, or Ruby that defines it as a constant (see Rack::Builder).
  class AppFile
    # What rackup adds to an app in each environment; nothing in others, such as production.
    MIDDLEWARE = {
      "development" => %i[CommonLogger ShowExceptions Lint TempfileReaper],
      "deployment" => %i[CommonLogger TempfileReaper]
    }.freeze

    # @param path [String, nil] as given on the command line
    def initialize(path)
      @path = path
    end

    # Loads it, anew each time.
    #
    # @param default_middleware [Boolean] whether to add rackup's middleware, for the environment that RACK_ENV names
    # @param path [String, nil] if none was given; nil: config.ru
    # @return [#call]
    # @raise [Error] when there is no such file or no app in it; and whatever the file raises
    def load(default_middleware: true, path: nil)
      file = Text.expand(@path || path || "config.ru")
      raise Error, "there is no #{file}#{suggestion}" unless File.file?(file)

      # Rack 2 also returns the options in the file.
      app = Rack::Builder.parse_file(file)
      app = app.first if app.is_a?(Array)
      raise Error, "#{file} does not return an app, but #{app.inspect[0, 200]}" unless app.respond_to?(:call)

      names = default_middleware ? MIDDLEWARE.fetch(ENV["RACK_ENV"], []) : []
      names.reverse.inject(app) do |inner, name|
        Rack.const_get(name).new(inner, *(name == :CommonLogger ? [$stderr] : []))
      end
    end

    private

    # For a command that was meant.
    def suggestion = @path.to_s.b.match?(/\A[\w-]+\z/) ? Error.suggestion(@path, Help::WORDS) : ""
  end
end
