# frozen_string_literal: true

require "open3"
require_relative "../error"

module Fastrack
  module Proxy
    # The proxy's program. It knows no Ruby: a gem for a platform has one for all Rubies, and bin/setup makes one for each system.
    module Program
      NAME = "fastrack-proxy"

      # Places of the program below lib/fastrack, the most specific first. RubyGems installs what it compiles elsewhere on the load path.
      PLACES = ["#{RUBY_VERSION[/\A\d+\.\d+/]}/#{NAME}", NAME].freeze

      module_function

      # @return [String] its path
      # @raise [Error] if it is not there
      def path
        folders = [File.expand_path("..", __dir__), *$LOAD_PATH.map { |folder| "#{folder}/fastrack" }]
        places = folders.flat_map { |folder| PLACES.map { |place| "#{folder}/#{place}" } }
        places.find { |place| File.file?(place) && File.executable?(place) } or
          raise Error, "the proxy is not built (#{NAME}): run bin/setup in a checkout, or reinstall the gem with `gem pristine rhebok-rs`"
      end

      # Runs a command of the program.
      #
      # @param input [String]
      # @return [Array(String)] lines of its output
      # @raise [Error] with its reason when it fails
      def run(*arguments, input: "")
        output, status = Open3.capture2(path, *arguments, stdin_data: input)
        lines = output.lines(chomp: true)
        return lines if status.success?

        raise Error, lines.filter_map { |line| line.delete_prefix("error ") if line.start_with?("error ") }.last || "#{NAME} has failed (#{status})"
      end
    end
  end
end
