# frozen_string_literal: true

require_relative "configuration/app_environment"
require_relative "configuration/options"
require_relative "error"
require_relative "launcher"

module Fastrack
  # The interface for Rack, rackup and Rails, which find it as Rack::Handler::Fastrack or Rackup::Handler::Fastrack.
  class Handler
    class << self
      # Serves an app until the server is told to stop.
      #
      # @param app [#call] a Rack app
      # @param options [Hash] see Option; a Hash, as with Rack 2, or keywords
      # @yieldparam launcher [Launcher] which can stop the server
      # @raise [SystemExit] with status 1 when it cannot start; the reason is one line on stderr
      def run(app, options = {}, **keywords)
        AppEnvironment.settle_rackup
        launcher = Launcher.new(app, options.merge(keywords))
        Handler.launcher = launcher
        yield launcher if block_given?
        launcher.run
      rescue Error => e
        abort "fastrack: #{e.message}"
      ensure
        Handler.launcher = nil
      end

      # Stops the server of this process. rackup calls it on INT.
      def shutdown = Handler.launcher ? Handler.launcher.stop : exit

      # @return [Hash{String => String}] for `rackup -s Fastrack --help`
      def valid_options
        Option::ALL.to_h { |option| ["#{option.name}=#{option.word.to_s.upcase}", option.help_with_default] }
      end

      # @!visibility private
      # Handler's own counts, not those of its subclasses.
      attr_accessor :launcher
    end
  end
end
