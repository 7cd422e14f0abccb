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
      # @yieldparam launcher [Launcher] can stop the server
      # @raise [SystemExit] with status 1 when the server cannot start; the reason is one line on stderr
      def run(app, options = {}, **keywords)
        AppEnvironment.settle_rackup
        launcher = Launcher.new(app, { **options.merge(keywords), **start_of(app) })
        Handler.launcher = launcher
        yield launcher if block_given?
        launcher.run
      rescue StartFailed => e
        exit e.status
      rescue Error => e
        abort "fastrack: #{e.message}"
      ensure
        Handler.launcher = nil
      end

      # @return [Hash] facts about the start that the configuration uses
      def start_of(app)
        # `ruby app.rb` of a Sinatra app sets no variable that names the environment.
        development = app.respond_to?(:development?) && app.development?
        { **(Handler.picked ? { picked: true } : {}), **(development ? { development: true } : {}) }
      end
      private :start_of

      # Stops the server of this process. rackup calls it on INT.
      def shutdown = Handler.launcher ? Handler.launcher.stop : exit

      # @return [Hash{String => String}] for `rackup -s Fastrack --help`
      def valid_options
        Option::ALL.to_h { |option| ["#{option.name}=#{option.word.to_s.upcase}", option.help_with_default] }
      end

      # @!visibility private
      # Only the value of Handler itself is used, not a subclass's.
      attr_accessor :launcher

      # @!visibility private
      # Whether nobody has named this server: see DefaultServer.
      attr_accessor :picked
    end
  end

  # Makes Fastrack the default before WEBrick where nobody has named a server. So a Rails app needs only `gem "rhebok-rs"` in place of `gem
  # "puma"`, for `bin/rails server` and for system tests.
  module DefaultServer
    # Overrides `pick` of rackup's Handler, and of Rack 2's. `rackup`, `bin/rails server` and Sinatra pass the servers that they know, the
    # preferred one first. Puma is still picked if the bundle has Puma.
    #
    # @param names [Array<String, Symbol>, String, Symbol] a single name is a user's choice
    def pick(names)
      better, last = Array(names).map(&:to_s).partition { |name| name != "webrick" }
      return super unless better.any? && last.any?

      super([*better, "fastrack", *last]).tap { |server| Handler.picked = true if server.to_s.end_with?("Handler::Fastrack") }
    end

    # Overrides `served_url` of Rails::Server. Rails prints the address of its options, and the server may listen at another one.
    module ServedURL
      def served_url
        super unless server.to_s.end_with?("Handler::Fastrack")
      end
    end

    class << self
      # Makes Fastrack the server of system tests and browser tests, unless Capybara.server is set or Puma is in the bundle. Rails chooses
      # its server when ActionDispatch::SystemTestCase is loaded, right after this hook.
      def watch_rails
        ActiveSupport.on_load(:action_dispatch_system_test_case) { DefaultServer.set_capybara(ActionDispatch::SystemTesting::Server.silence_puma) }
        ::Rails::Server.prepend(ServedURL) if defined?(::Rails::Server)
        ActiveSupport.on_load(:after_initialize) { DefaultServer.set_capybara(false) if defined?(::Capybara) }
      end

      # @param silent [Boolean] whether the server prints nothing at its start
      def set_capybara(silent)
        require "capybara"
        return if puma? || Capybara.server != Capybara.servers[:default]

        require_relative "capybara"
        Capybara.server = :fastrack, { Silent: silent }
      end

      private

      # Whether Puma is in the bundle or, without Bundler, installed.
      def puma? = Gem::Specification.find_all_by_name("puma").any?
    end
  end
end
