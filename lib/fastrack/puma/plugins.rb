# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "../master/hooks"

module Fastrack
  # Plugins of Puma's, such as Solid Queue's, which run in the master. They get what they need of Puma: events, a log,
  # options and background threads. Puma itself need not be there.
  class PumaPlugins
    # Where `require "puma/plugin"` finds ours if there is no Puma.
    PATH = File.join(__dir__, "require")

    # Names of events, old and new.
    EVENTS = {
      on_booted: :after_booted, on_stopped: :after_stopped, on_restart: :before_restart, after_booted: :after_booted,
      after_stopped: :after_stopped, before_restart: :before_restart
    }.freeze

    class << self
      # @return [Module] ::Puma
      def constants
        $LOAD_PATH.push(PATH) unless $LOAD_PATH.include?(PATH)
        require "puma/plugin"
        # The real one's, if it is there.
        require "puma/const" unless defined?(::Puma::Const)
        ::Puma
      end

      # @return [Object] the plugin
      # @raise [ConfigurationError] when there is none
      def find(name)
        constants::Plugins.find(name.to_s).new.tap { |plugin| plugin.extend(Background) }
      rescue StandardError, ScriptError => e
        raise ConfigurationError, "plugin #{name.inspect} cannot be loaded: #{Error.reason(e)}; is its gem in the Gemfile?"
      end

      # `exit` in a thread would end the server, as would an exception with `Thread.abort_on_exception`.
      def thread
        Thread.new do
          yield
        rescue Exception => e # rubocop:disable Lint/RescueException -- see above
          Log.exception("a plugin's background thread failed", e)
        end
      end
    end

    # Threads that a plugin wants to have while the server runs. It may ask for them at its start or later, as in an event.
    module Background
      def in_background(&block)
        @fastrack_started ? PumaPlugins.thread(&block) : (@fastrack_background ||= []) << block
      end

      def fastrack_start_background
        @fastrack_started = true
        @fastrack_background&.each { |work| PumaPlugins.thread(&work) }
      end
    end

    # @param launcher [Launcher]
    # @param settings [PumaExtras]
    def initialize(launcher, settings)
      @launcher = launcher
      @plugins = settings.plugins
      @options = settings.options
      @hooks = Hash.new { |hooks, event| hooks[event] = [] }
    end

    # In the master, before there are workers. One that is not done when the server is told to end is left out.
    #
    # @raise [ConfigurationError] when a plugin asks for what is not there
    def start
      @plugins.each do |name, plugin|
        @launcher.hooks.bounded { plugin.start(self) } if plugin.respond_to?(:start)
        plugin.fastrack_start_background
      rescue TimeLimit::Interrupted => e
        Log.exception("plugin #{name.inspect} does not start", e)
      rescue Exception => e # rubocop:disable Lint/RescueException -- also `exit` and what is not implemented
        raise ConfigurationError, "plugin #{name.inspect} does not start, without Puma's server: #{Error.reason(e)}"
      end
    end

    # Calls hooks of the puma.rb, which for a restart are those before USR2, and of the plugins.
    #
    # @param event [Symbol]
    def fire(event)
      @launcher.configuration.puma&.fire(event, @launcher.hooks) unless event == :before_restart
      @hooks[event].each { |hook| @launcher.hooks.call("a plugin's #{event}", &hook) }
    end

    # What plugins ask of Puma's launcher, and of what that gives them.
    attr_reader :options

    def events = self
    def log_writer = self
    def config = self
    def stop = @launcher.stop
    def restart = @launcher.restart
    alias phased_restart restart

    EVENTS.each { |name, event| define_method(name) { |&block| @hooks[event] << block } }

    def log(text) = Log.say(text)
    def error(text) = Log.line(text, :error)
    def debug(*) = nil
    alias write log
  end
end
