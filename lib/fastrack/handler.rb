# frozen_string_literal: true

require_relative "error"
require_relative "launcher"
require_relative "configuration/options"

module Fastrack
  # What Rack, rackup and Rails know a server by. They find it as Rack::Handler::Fastrack or Rackup::Handler::Fastrack.
  class Handler
    class << self
      # Serves an app until the server is told to stop.
      #
      # @param app [#call] a Rack app
      # @param options [Hash] see Option; positional as Rack 2's users call it, or as keywords
      # @yieldparam launcher [Launcher] which can stop the server
      # @raise [SystemExit] with status 1 when it cannot start; stderr has one line that says why
      def run(app, options = {}, **keywords)
        launcher = Launcher.new(app, options.merge(keywords))
        Handler.launcher = launcher
        yield launcher if block_given?
        launcher.run
      rescue Error => e
        abort "fastrack: #{e.message}"
      ensure
        Handler.launcher = nil
      end

      # Stops the server that runs in this process; rackup calls it on INT.
      def shutdown
        Handler.launcher ? Handler.launcher.stop : exit
      end

      # @return [Hash{String => String}] what `rackup -s Fastrack --help` shows
      def valid_options
        Option::ALL.to_h do |option|
          default = option.default.nil? ? "" : " (default: #{option.default})"
          ["#{option.name}=#{option.word.to_s.upcase}", "#{option.help}#{default}"]
        end
      end

      # @!visibility private
      # The one of Handler itself is used, whichever subclass is asked.
      attr_accessor :launcher
    end
  end
end
