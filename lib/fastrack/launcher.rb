# frozen_string_literal: true

require_relative "backtrace"
require_relative "configuration"
require_relative "configuration/start_lines"
require_relative "configuration/unicorn_api"
require_relative "error"
require_relative "listener/listener_set"
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
  # A server, from the options to the end. Handlers yield the Launcher to a block, which can stop the server. Hooks get the Launcher as
  # `server`.
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
      # The extension is loaded here, because requiring the gem must work where the extension is not built.
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

    # @return [Boolean] whether a developer runs the server at a terminal
    def interactive? = @interactive

    # Serves until the server is told to stop.
    #
    # @param background [Boolean] whether there is no terminal to write to
    # @yield when the server listens, before the first worker is spawned
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
    # @yield to run `reading`, which may take for ever
    # @yieldparam seconds [Float] the most that `reading` may take; 0: no limit
    # @yieldparam reading [#call]
    # @yieldreturn the result of `reading`
    # @return [Array<Listener>] listeners that are no longer configured, now closed
    # @raise [Error] if reading fails; then nothing has changed
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

    # Called when all workers of a generation serve.
    def ready
      Log.say("Fastrack is ready Workers:#{worker_processes} Pid:#{Process.pid}")
      booted = @booted
      @booted = true
      @puma&.fire(:after_booted) unless booted
    end

    # Called when all workers have exited. Signals are still handled.
    #
    # @param again [Boolean] whether the server is to start again
    def stopped(again:)
      return @puma&.fire(:after_stopped) unless again

      # As before USR2 starts a new master: hooks may change ENV for the new start.
      ENV.replace(StartCommand.current.environment)
      hooks.call_hook(:before_exec)
      @puma&.fire(:before_restart)
    end

    # @!visibility private
    # @return [MasterHooks]
    def hooks = @master.hooks

    # @return [Boolean] whether workers have the app from the master
    def preloaded? = @loaded

    # Called in a worker that the mold has forked. The mold has no listeners and no queue, so the worker gets the master's.
    #
    # @param descriptors [Array<IO>] of the listeners, and the shared queue's
    # @param master [Integer] its pid
    def take_over(descriptors, master)
      # Those that the mold opened in an after_fork, as a worker.
      listeners.reject! { |listener| @worker_listeners&.include?(listener) }
      @worker_listeners = nil
      listeners.each { |listener| listener.renew(descriptors.shift) }
      # The queue duplicates the descriptors.
      @queue &&= SharedQueue.of_master(descriptors.map(&:fileno), master)
      descriptors.each(&:close)
    end

    # Loads new code, for Puma's plugins. In development the server starts again in the same process: a terminal, foreman or a container
    # would take a new process for the end of the server. A server that is stopping does not start again.
    #
    # @return [String] the way, for the log
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

    # @return [Integer] wanted number of workers, by Unicorn's name
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

    # Called once the master queues signals.
    def prepare
      @pid_file&.claim
      EngineBuilder.load(@configuration)
      redirect_output(@background)
      yield if block_given?
      @puma = @configuration.puma&.start(self)
      warm_up
      Process.setproctitle(title("master"))
      @listener_set.announce(urls: @configuration.development?)
      Log.say("Use Ctrl-C to stop#{", Ctrl-\\ for backtraces" if interactive?}") if @configuration.development?
      StartLines.for(@configuration).each { |line| Log.say(line) }
      [@configuration.threads_line, *@configuration.startup_hints, ProcessSetup.shortage].compact.each { |line| Log.line(line) }
    end

    # Workers keep copies of the old file.
    def replace_access_log(file)
      @access_log.close unless [nil, STDOUT].include?(@access_log)
      @access_log = file
    end

    # The server already listens, so clients wait for the app and are not refused.
    #
    # @return [#call, AppFile] an AppFile if each worker loads the app
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

    # Without buffers: readers follow the log, and a killed worker must not lose lines.
    def redirect_output(background)
      @process_setup.redirect(background ? File.open(File::NULL, "w") : nil)
      Log.flush
      # The app may have replaced $stdout and $stderr by objects that write to STDOUT and STDERR.
      [$stdout, $stderr, STDOUT, STDERR].each { |stream| stream.sync = true if stream.respond_to?(:sync=) }
      LogFiles.remember
    end

    # Prepares memory for the fork. Compacts the heap and makes objects old, because each worker would copy young objects at its first
    # garbage collection. Fills the space between malloc's blocks, because each worker would copy a page to use it. Gives back the part of
    # the stack that only the boot has used.
    def warm_up
      prepare_objects
      Fastrack.fill_heap_holes
      Fastrack.release_stack
    end

    def prepare_objects
      return make_old unless Process.respond_to?(:warmup)

      Process.warmup
      # A compacted heap has little room left. This collection lets the heap grow. Without it each worker would need a full mark to grow,
      # and on Ruby 3.3 a full mark writes to the code of all methods.
      GC.start if RUBY_VERSION.start_with?("3.3.")
    end

    # An object is old once it has survived three collections, and minor collections skip old objects. The full collection comes last,
    # because Ruby sets by it how many old objects may exist before the next one.
    def make_old
      3.times { GC.start(full_mark: false) }
      GC.start
    end
  end
end
