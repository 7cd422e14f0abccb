# frozen_string_literal: true

require_relative "announcer"
require_relative "configuration"
require_relative "error"
require_relative "configuration/unicorn_server_api"
require_relative "listener/inherited"
require_relative "listener/change"
require_relative "listeners"
require_relative "log"
require_relative "log_files"
require_relative "master"
require_relative "process/pid_file"
require_relative "upgrade/old_master"
require_relative "process/settings"
require_relative "shared_queue"
require_relative "upgrade/start_command"

module Fastrack
  # A server, from its options to its end. Handlers yield it to a block, through which it can be stopped; hooks get it.
  class Launcher
    include HookServer

    # @return [Configuration] another one after a HUP
    attr_reader :configuration
    # @return [Array<Listener>]
    attr_reader :listeners
    # @return [Array<Listener>] those that are gone: connections that came by one may still be kept
    attr_reader :former_listeners
    # @return [Boolean] whether the listeners are a supervisor's, and not those that are configured
    attr_reader :listeners_given
    alias listeners_given? listeners_given
    # @return [SharedQueue, nil] nil where connections stay with their workers
    attr_reader :queue
    # @return [PidFile, nil]
    attr_reader :pid_file

    # Takes the options and listens. Everything that can be wrong with them is found here, before anything is forked, and
    # what is wrong with an option before anything is bound.
    #
    # @param app [#call, AppFile] a Rack app, or one that is still to be loaded
    # @param options [Hash] see Option
    # @param overrides [Hash] see Configuration
    # @raise [Error]
    def initialize(app, options = {}, overrides = {})
      deferred = app.respond_to?(:load) && !app.respond_to?(:call)
      raise Error, "the app does not respond to call: #{app.inspect[0, 200]}" unless deferred || app.respond_to?(:call)

      @master_pid = Process.pid
      StartContext.current.daemonized if options[:daemonize]
      @configuration = Configuration.new(options, overrides: overrides)
      @process_settings = ProcessSettings.new(@configuration)
      @process_settings.enter
      load_engine
      predecessor = Predecessor.take_over
      @queue = @configuration.hand_over ? SharedQueue.take_over : SharedQueue.decline
      @listeners = open_listeners
      @pid_file = @configuration.pid && PidFile.new(@configuration.pid)
      @master = Master.new(self, deferred ? preload(app) : loaded(app), predecessor)
    end

    # Serves until the server is told to stop.
    #
    # @param background [Boolean] whether there is no terminal any more to write to
    # @yield once it listens, and before the first worker is spawned
    def run(background: false)
      @master.run do
        # Whoever knows the pid may send it signals, which have their effect from here on.
        @pid_file&.claim
        redirect_output(background)
        yield if block_given?
        warm_up
      end
    ensure
      @listeners.each(&:close)
      @queue&.close
      @pid_file&.remove
    end

    # Has #run return once the requests that are being served are finished. Safe in a signal handler, from any thread, and
    # before #run.
    def stop
      @master.stop
    end
    alias shutdown stop

    # Reads the ConfigFile anew, and listens where that says by then. Listeners that are named as before stay what they
    # are: they are never taken from under their clients.
    #
    # @return [ListenerChange, nil] nil where a supervisor decides on the listeners
    # @raise [Error] when there is something wrong with it; then nothing has changed
    def reload
      configuration = @configuration.reload
      change = ListenerChange.new(@listeners, @configuration, configuration) unless listeners_given?
      settings = ProcessSettings.new(configuration)
      settings.enter
      settings.redirect
      LogFiles.remember
      @configuration = configuration
      change&.tap do
        @listeners = change.complete
        @former_listeners += change.gone
      end
    rescue Error
      change&.cancel
      raise
    end

    # @return [Integer] as many as there are to be just now, as Unicorn's hooks ask
    def worker_processes
      @master.worker_processes
    end

    private

    # Not before a server is wanted: to require the gem must be possible where it is not built.
    def load_engine
      require_relative "native"
    rescue LoadError => e
      raise Error, e.message.lines.first.chomp
    end

    def open_listeners
      inherited = InheritedListeners.take_over
      given = inherited.given? ? inherited.take_all : Listeners.given_by(ENV)
      @listeners_given = !given.empty?
      @listeners_given ? given : Listeners.open(@configuration) { |address| inherited.take(address) }
    ensure
      @former_listeners = inherited ? inherited.close_rest : []
    end

    # An app that is loaded after the server listens: meanwhile clients wait, and are not refused.
    #
    # @return [#call, AppFile] the latter where each worker is to load it
    def preload(app)
      @configuration.preload_app ? app.load(default_middleware: @configuration.default_middleware) : app
    rescue Exception # rubocop:disable Lint/RescueException -- whatever it is, it goes on
      @listeners.each(&:close)
      raise
    end

    def loaded(app)
      useless(:PreloadApp, "the app is loaded already. `fastrack` loads it in each worker") unless @configuration.preload_app
      useless(:DefaultMiddleware, "the app has what rackup gave it") unless @configuration.default_middleware
      app
    end

    def useless(option, reason)
      Log.line("#{@configuration.source(option)} has no effect: #{reason}")
    end

    # A log is read while it is written, through a pipe too, and must not be lost with a worker that is killed.
    def redirect_output(background)
      @process_settings.redirect(background ? File.open(File::NULL, "w") : nil)
      Log.flush
      [$stdout, $stderr].each { |stream| stream.sync = true if stream.respond_to?(:sync=) }
      LogFiles.remember
    end

    # What the app has loaded is made old and compact, so that workers share the master's memory instead of copying it
    # when they first collect garbage.
    def warm_up
      return Process.warmup if Process.respond_to?(:warmup)

      # Objects are old, and no longer touched by most collections, once they have survived three.
      4.times { GC.start }
    end
  end
end
