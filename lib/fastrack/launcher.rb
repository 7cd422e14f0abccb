# frozen_string_literal: true

require_relative "backtrace"
require_relative "configuration"
require_relative "configuration/start_lines"
require_relative "configuration/unicorn_api"
require_relative "error"
require_relative "listener/set"
require_relative "log"
require_relative "master"
require_relative "master/process_setup"
require_relative "process/guards"
require_relative "process/last_words"
require_relative "process/pid_file"
require_relative "process/start_command"
require_relative "text"
require_relative "upgrade/masters"

module Fastrack
  # A server, from its options to its end. Handlers yield it to a block, which can stop it. Hooks get it as `server`.
  class Launcher
    include UnicornServerApi

    # @return [Configuration] replaced by a HUP
    attr_reader :configuration
    # @return [SharedQueue, nil] nil without HandOver
    attr_reader :queue
    # @return [PidFile, nil]
    attr_reader :pid_file
    # @return [IO, nil]
    attr_reader :access_log

    # Checks the options, then listens, then loads the app: errors are raised before anything is forked.
    #
    # @param app [#call, AppFile] a Rack app, or a file to load it from
    # @param options [Hash] see Option
    # @param overrides [Hash] see Configuration
    # @raise [Error]
    def initialize(app, options = {}, overrides = {})
      loadable = app.respond_to?(:load) && !app.respond_to?(:call)
      raise Error, "the app does not respond to call: #{app.inspect[0, 200]}" unless loadable || app.respond_to?(:call)

      @master_pid = Process.pid
      LastWords.take_over
      StartCommand.current.daemonized if options[:daemonize]
      @configuration = Configuration.new(options, overrides: overrides)
      apply_settings
      # Not when the gem is required: that must be possible where the extension is not built.
      require_relative "native"
      old_master = OldMaster.take_over
      @queue = OldMaster.take_over_queue(@configuration.hand_over)
      @listener_set = ListenerSet.new(@configuration)
      @interactive = @configuration.development? && !supervised? && ProcessSetup.foreground?
      app = loadable ? preload(app) : loaded(app)
      @loaded = app.respond_to?(:call)
      @master = Master.new(self, app, old_master)
    rescue Exception => e # rubocop:disable Lint/RescueException -- it is raised again
      LastWords.say_to_old(e)
      raise
    end

    # @return [Boolean] whether a developer sits in front of it
    def interactive? = @interactive

    # Serves until the server is told to stop.
    #
    # @param background [Boolean] whether there is no terminal to write to
    # @yield when it listens, before the first worker is spawned
    def run(background: false, &listening)
      @background = background
      StartCommand.current.run_again(@configuration.pid_files) if serve(&listening)
    end

    # Makes #run return once all current requests are finished. Safe in a signal handler, on any thread, and before #run.
    def stop = @master.stop
    alias shutdown stop

    # @return [Array<Listener>]
    def listeners = @listener_set.all

    # @return [Array<Listener>] see ListenerSet
    def former_listeners = @listener_set.former

    # @return [Boolean] see ListenerSet
    def supervised? = @listener_set.supervised?

    # Reads the ConfigFile again.
    #
    # @yield what reads it, which may take for ever
    # @yieldparam seconds [Float] how long it may take; 0: no limit
    # @yieldparam reading [#call]
    # @yieldreturn what `reading` returns
    # @return [Array<Listener>] those that are no longer configured, now closed
    # @raise [Error] and nothing has changed
    def reload
      ProcessSetup.find_directory(@configuration)
      configuration = yield(@configuration.worker_boot_timeout, @configuration.method(:reload))
      @listener_set.change(@configuration, configuration) do
        settings = ProcessSetup.new(configuration)
        settings.apply
        replace_access_log(settings.access_log)
        settings.redirect
        settings.format_log
        LogFiles.remember
        EngineBuilder.load(configuration)
        @configuration = configuration
      end
    end

    # All workers of a generation serve.
    def ready
      Log.say("Fastrack is ready Workers:#{worker_processes} Pid:#{Process.pid}")
      booted = @booted
      @booted = true
      @puma&.fire(:after_booted) unless booted
    end

    # All workers are gone, and signals are still heard.
    #
    # @param again [Boolean] whether the server is to start again
    def stopped(again:)
      return @puma&.fire(:after_stopped) unless again

      # As before USR2 starts a new master: what hooks put into ENV counts.
      ENV.replace(StartCommand.current.environment)
      hooks.call_hook(:before_exec)
      @puma&.fire(:before_restart)
    end

    # @!visibility private
    # @return [MasterHooks]
    def hooks = @master.hooks

    # @return [Boolean] whether workers have the app from the master
    def preloaded? = @loaded

    # In a worker that the mold has forked: the master's descriptors, of which the mold has none.
    #
    # @param descriptors [Array<IO>] of the listeners, and the shared queue's
    # @param master [Integer] its pid
    def take_over(descriptors, master)
      listeners.each { |listener| listener.renew(descriptors.shift) }
      # It duplicates its own.
      @queue &&= SharedQueue.of_master(descriptors.map(&:fileno), master)
      descriptors.each(&:close)
    end

    # Makes new code serve, for plugins of Puma's. In development by a start in the same process: a terminal, foreman or a
    # container would take a new one for the end. A server that is stopping does not start again.
    #
    # @return [String] how
    def restart
      in_place = @loaded && @configuration.development? && !@background && !supervised?
      return (@loaded ? "USR2" : "HUP").tap { |signal| Process.kill(signal, Process.pid) } unless in_place

      @master.restart
      "in this process"
    end

    # @return [String] for ps(1)
    def title(role)
      tag = @configuration.puma&.tag
      "fastrack #{role}#{" [#{tag}]" if tag}"
    end

    # @return [Integer] how many there should be now, as Unicorn's hooks ask
    def worker_processes = @master.worker_processes

    private

    # @return [Boolean] whether to start again
    def serve(&listening)
      console = ProcessSetup.console_mode if interactive?
      @master.run { prepare(&listening) }
    rescue Exception => e # rubocop:disable Lint/RescueException -- it is raised again
      LastWords.say_to_old(e)
      raise
    ensure
      console&.call
      Process.setproctitle($PROGRAM_NAME)
      @listener_set.close
      @queue&.close
      @pid_file&.remove
    end

    def apply_settings
      @process_setup = ProcessSetup.new(@configuration)
      @process_setup.apply
      @process_setup.format_log
      @access_log = @process_setup.access_log
      @pid_file = @configuration.pid && PidFile.new(@configuration.pid)
    end

    # From here on signals are queued.
    def prepare
      @pid_file&.claim
      # Before an app that each worker loads, a library that wraps `exec` by an alias would wrap the guard's, which finds no other.
      ExitGuard.prepare if @loaded
      EngineBuilder.load(@configuration)
      redirect_output(@background)
      yield if block_given?
      @puma = @configuration.puma&.start(self)
      warm_up
      Process.setproctitle(title("master"))
      @listener_set.announce(urls: @configuration.development?)
      Log.say("Use Ctrl-C to stop#{", Ctrl-\\ for backtraces" if interactive?}") if @configuration.development?
      StartLines.for(@configuration).each { |line| Log.say(line) }
      [@configuration.threads_line, *@configuration.oversights, ProcessSetup.shortage].compact.each { |line| Log.line(line) }
    end

    # Workers have copies of the old one.
    def replace_access_log(file)
      @access_log.close unless [nil, STDOUT].include?(@access_log)
      @access_log = file
    end

    # The server listens already: clients wait meanwhile, and are not refused.
    #
    # @return [#call, AppFile] an AppFile if each worker is to load it
    def preload(app)
      @configuration.preload_app ? @configuration.load_app(app) : app
    rescue Exception => e # rubocop:disable Lint/RescueException -- it is raised again
      @listener_set.close
      raise if e.is_a?(Error) || !(StandardError === e || ScriptError === e)

      raise Error, "the app does not load: #{Backtrace.text(e)}"
    end

    def loaded(app)
      no_effect(:PreloadApp, "the app is already loaded; use `fastrack` to load it in each worker") unless @configuration.preload_app
      no_effect(:DefaultMiddleware, "rackup has already added it") unless @configuration.default_middleware || @configuration.puma
      Log.line("rackup in a puma.rb has no effect: the app is already loaded") if @configuration.puma&.rackup
      app
    end

    def no_effect(option, reason) = Log.line("#{@configuration.source(option)} has no effect: #{reason}")

    # Unbuffered: logs are read while they are written, and must not be lost with a killed worker.
    def redirect_output(background)
      @process_setup.redirect(background ? File.open(File::NULL, "w") : nil)
      Log.flush
      # The app may have replaced the first two by objects that write to the others.
      [$stdout, $stderr, STDOUT, STDERR].each { |stream| stream.sync = true if stream.respond_to?(:sync=) }
      LogFiles.remember
    end

    # Compacts the heap and makes its objects old, so that workers share the master's memory instead of copying it at their
    # first garbage collection. Nor shall they copy a page for what is free in it between two blocks of malloc, or have what the boot
    # has left on the stack.
    def warm_up
      prepare_objects
      Fastrack.fill_heap_holes
      Fastrack.release_stack
    end

    def prepare_objects
      return make_old unless Process.respond_to?(:warmup)

      Process.warmup
      # A compact heap has little room left. This collection lets it grow; else those of the workers would have to, and it takes a
      # full mark, which on Ruby 3.3 writes to the code of all methods.
      GC.start if RUBY_VERSION.start_with?("3.3.")
    end

    # Objects are old, and skipped by minor collections, once they have survived three. The full one comes last: Ruby sets by it
    # how many old objects there may be before the next.
    def make_old
      3.times { GC.start(full_mark: false) }
      GC.start
    end
  end
end
