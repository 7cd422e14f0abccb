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
        launcher = Launcher.new(app, { **options.merge(keywords), **start_of(app) })
        Handler.launcher = launcher
        yield launcher if block_given?
        launcher.run
      rescue Error => e
        abort "fastrack: #{e.message}"
      ensure
        Handler.launcher = nil
      end

      # @return [Hash] of how it was started what the configuration wants to know
      def start_of(app)
        # `ruby app.rb` of a Sinatra app sets no variable that says so.
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
      # Handler's own counts, not those of its subclasses.
      attr_accessor :launcher

      # @!visibility private
      # Whether nobody has named this server: see DefaultServer.
      attr_accessor :picked
    end
  end

  # Where nobody has named a server, this one is taken before WEBrick. The Gemfile's `gem "rhebok-rs"` in place of `gem "puma"` is then all
  # that a Rails app needs for `bin/rails server` and for its system tests.
  module DefaultServer
    # For rackup's Handler, and Rack 2's. `rackup`, `bin/rails server` and Sinatra give it the servers that they know, the preferred
    # one first. Puma, which is among them, is still taken if it is in the bundle.
    #
    # @param names [Array<String, Symbol>, String, Symbol] one name alone is what somebody has chosen
    def pick(names)
      better, last = Array(names).map(&:to_s).partition { |name| name != "webrick" }
      return super unless better.any? && last.any?

      super([*better, "fastrack", *last]).tap { |server| Handler.picked = true if server.to_s.end_with?("Handler::Fastrack") }
    end

    class << self
      # Has system tests and browser tests use this server if they are Puma's only because nobody has set Capybara.server. Rails decides
      # on that when it loads ActionDispatch::SystemTestCase, and right after this hook of it.
      def watch_rails
        ActiveSupport.on_load(:action_dispatch_system_test_case) { DefaultServer.set_capybara(ActionDispatch::SystemTesting::Server.silence_puma) }
        ActiveSupport.on_load(:after_initialize) { DefaultServer.set_capybara(false) if defined?(::Capybara) }
      end

      # @param silent [Boolean] whether the server says nothing at its start
      def set_capybara(silent)
        require "capybara"
        return if puma? || Capybara.server != Capybara.servers[:default]

        require_relative "capybara"
        Capybara.server = :fastrack, { Silent: silent }
      end

      private

      # Whether it is in the bundle or, without Bundler, installed.
      def puma? = Gem::Specification.find_all_by_name("puma").any?
    end
  end
end
