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

      # Forgets the threads of a start that has failed.
      def fastrack_forget = @fastrack_background&.clear
    end

    # Seconds between two tries of a plugin whose port is in use.
    INTERVAL = 1

    # @param launcher [Launcher]
    # @param settings [PumaExtras]
    def initialize(launcher, settings)
      @launcher = launcher
      @plugins = settings.plugins
      @options = settings.options
      @hooks = Hash.new { |hooks, event| hooks[event] = [] }
      @waiting = {}
    end

    # Starts the plugins. A plugin that is not done when the server is told to end is left out.
    #
    # @param wait [Boolean] whether a plugin whose port is in use is tried again: a process that is about to end may have the port
    # @raise [ConfigurationError] when a plugin uses a part of Puma that Fastrack does not have
    def start(wait: false)
      @plugins.each do |name, plugin|
        start_plugin(name, plugin)
      rescue Errno::EADDRINUSE => e
        raise refusal(name, e) unless wait

        @waiting[name] = plugin
        Log.line("plugin #{name.inspect} does not start, and is tried again every #{INTERVAL} s: #{Error.reason(e)}", :error)
      end
    end

    # @return [Integer, nil] seconds until #try_again has something to do
    def pause = (INTERVAL if @waiting.any?)

    # Starts plugins whose ports were in use.
    def try_again
      @waiting.reject! do |name, plugin|
        known = @hooks[:after_booted].size
        start_plugin(name, plugin)
        Log.line("plugin #{name.inspect} has started")
        call(:after_booted, @hooks[:after_booted].drop(known)) if @booted
        true
      rescue Errno::EADDRINUSE
        false
      rescue ConfigurationError => e
        Log.line(e.message, :error)
        true
      end
    end

    # Calls an event's hooks, of the puma.rb and of the plugins. The puma.rb's hooks for a restart run as `before_exec`.
    #
    # @param event [Symbol]
    def fire(event)
      @booted ||= event == :after_booted
      @launcher.configuration.puma&.fire(event, @launcher.hooks) unless event == :before_restart
      call(event, @hooks[event])
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

    private

    def call(event, hooks) = hooks.each { |hook| @launcher.hooks.call("a plugin's #{event}", &hook) }

    # @raise [ConfigurationError]
    # @raise [Errno::EADDRINUSE] then the plugin has left nothing behind
    def start_plugin(name, plugin)
      sizes = @hooks.transform_values(&:size)
      @launcher.hooks.bounded { plugin.start(self) } if plugin.respond_to?(:start)
      plugin.fastrack_start_background
    rescue TimeLimit::Interrupted => e
      Log.exception("plugin #{name.inspect} does not start", e)
    rescue Errno::EADDRINUSE
      @hooks.each { |event, hooks| hooks.slice!(sizes.fetch(event, 0)..) }
      plugin.fastrack_forget
      raise
    rescue Exception => e # rubocop:disable Lint/RescueException -- also `exit` and what is not implemented
      raise refusal(name, e)
    end

    def refusal(name, error)
      ConfigurationError.new("plugin #{name.inspect} does not start, without Puma's server: #{Error.reason(error)}")
    end
  end
end
