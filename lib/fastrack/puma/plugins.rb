# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "../master/hooks"

module Fastrack
  # Runs Puma's plugins, such as Solid Queue's, in the master. A plugin gets events, a log, options and background threads. Puma itself need
  # not be installed.
  class PumaPlugins
    # Folder in which `require "puma/plugin"` finds Fastrack's file if Puma is not installed.
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
        # Puma's own constants, if Puma is installed.
        require "puma/const" unless defined?(::Puma::Const)
        ::Puma
      end

      # @return [Object] the plugin
      # @raise [ConfigurationError] when the plugin cannot be loaded
      def find(name)
        constants::Plugins.find(name.to_s).new.tap { |plugin| plugin.extend(Background) }
      rescue StandardError, ScriptError => e
        raise ConfigurationError, "plugin #{name.inspect} cannot be loaded: #{Error.reason(e)}; is its gem in the Gemfile?"
      end

      # Starts a plugin's thread. The rescue keeps `exit`, and exceptions with `Thread.abort_on_exception`, from ending the server.
      def thread
        Thread.new do
          yield
        rescue Exception => e # rubocop:disable Lint/RescueException -- see above
          Log.exception("a plugin's background thread failed", e)
        end
      end
    end

    # Background threads of a plugin. A plugin may ask for threads at its start or later, as in an event.
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

    # Starts the plugins in the master, before the first worker. A plugin that is not done when the server is told to end is left out.
    #
    # @raise [ConfigurationError] when a plugin uses a part of Puma that Fastrack does not have
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

    # Calls an event's hooks, of the puma.rb and of the plugins. The puma.rb's hooks for a restart run as `before_exec`.
    #
    # @param event [Symbol]
    def fire(event)
      @launcher.configuration.puma&.fire(event, @launcher.hooks) unless event == :before_restart
      @hooks[event].each { |hook| @launcher.hooks.call("a plugin's #{event}", &hook) }
    end

    # The methods of Puma's launcher, events, log writer and configuration that plugins call.
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
