# frozen_string_literal: true

require_relative "configuration"
require_relative "configuration/handed"
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
require_relative "upgrade/early_errors"
require_relative "upgrade/first_reading"
require_relative "upgrade/masters"
require_relative "upgrade/roots_program"
require_relative "upgrade/seat"
require_relative "worker/exit_hooks"
require_relative "worker/first_mold"

module Fastrack
  # A server, from the options to the end. Handlers yield the Launcher to a block, which can stop the server. Hooks get the Launcher as
  # `server`.
  class Launcher
    include UnicornServerApi

    # @return [Configuration] replaced by a HUP
    attr_reader :configuration
    # @return [FirstReading, nil] nil where the master has read the ConfigFile
    attr_reader :first_reading
    # @return [Configuration, nil] that of the code that serves, until a HUP has settled
    attr_reader :before
    # @return [SharedQueue, nil] nil without HandOver
    attr_reader :queue
    # @return [PidFile, nil]
    attr_reader :pid_file
    # @return [IO, nil]
    attr_reader :access_log
    # @return [Array<String>] see SafeFile.foreign=
    attr_reader :names

    # Checks the options, then listens.
    #
    # @param app [#call, AppFile] a Rack app, or a file to load it from
    # @param options [Hash] see Option
    # @param overrides [Hash] see Configuration
    # @raise [Error]
    def initialize(app, options = {}, overrides = {})
      loadable = app.respond_to?(:load) && !app.respond_to?(:call)
      raise Error, "the app does not respond to call: #{app.inspect[0, 200]}" unless loadable || app.respond_to?(:call)

      inherit
      StartCommand.current.daemonized if options[:daemonize]
      # The extension is loaded here, because requiring the gem must work where the extension is not built.
      require_relative "native"
      ExitHooks.install
      @loaded = !loadable
      options = keep_pid_file(options)
      @options = [options, overrides]
      @reading = ->(**lines) { Configuration.new(options, overrides: overrides, **lines) }
      @app = app
      @seat ? take_seat : become_master
      @interactive = @configuration.development? && !supervised? && ProcessSetup.foreground?
    rescue Exception => e # rubocop:disable Lint/RescueException -- it is raised again
      fail_start(e)
      raise
    end

    # @return [Boolean] whether a developer runs the server at a terminal
    def interactive? = @interactive

    # Serves until the server is told to stop.
    #
    # @param background [Boolean] whether there is no terminal to write to
    # @param waiting [#close, nil] what waits for the start, and is closed in forked processes
    # @yield when the server listens and the app is loaded, before the first worker is spawned
    def run(background: false, waiting: nil, &listening)
      exit FirstMold.new(self, @app, @seat.channel, @seat.death_pipe, starting: false).live if @seat
      @background = background
      @waiting = waiting
      StartCommand.current.run_again(@configuration.pid_files) if serve(&listening)
    end

    # Makes #run return once all current requests are finished. Safe in a signal handler, on any thread, and before #run.
    def stop = @mold ? @mold.tell(ControlChannel::STOP, "TERM") : @master.stop
    alias shutdown stop

    # @return [Array<Listener>]
    def listeners = @listener_set.all

    # @return [Array<Listener>] also those that old workers still have
    def open_listeners = @listener_set.open

    # @return [Array<Listener, FormerListener>] those that new workers do not have, and whose connections may still be kept alive
    def former_listeners = @listener_set.former + @listener_set.leaving

    # @return [Proxy::Supervisor, nil] nil until an option asks for the proxy
    def proxy
      return @proxy if @proxy || !@configuration.proxy?

      # Not for servers without a proxy.
      require_relative "proxy/supervisor"
      @proxy = Proxy::Supervisor.new(self)
    end

    # @return [Boolean] see ListenerSet
    def supervised? = @listener_set.supervised?

    # Takes the settings that a new generation 0 has read.
    #
    # @param settings [Hash{String => Object}] see Reading
    # @raise [Error] if they cannot be used; then nothing has changed
    def reload(settings)
      ProcessSetup.find_directory(@configuration)
      before = @configuration
      configuration = HandedConfiguration.new(before, settings)
      SafeFile.foreign = Reading.names(configuration) - @names
      @listener_set.change(before, configuration) { configure(configuration) }
      @before ||= before
    end

    # Called in a generation 0 that a HUP has forked.
    #
    # @param seat [Seat]
    # @return [Launcher] self
    # @param starting [Boolean] whether the server starts
    def sit(seat, starting: false)
      @seat = seat
      return take_seat(seat.opens_logs?).then { self } if starting

      start = StartCommand.current
      # The code stays, so it stays in its release.
      File.directory?(start.physical) ? Dir.chdir(start.physical) : start.enter
      take_seat
      self
    end

    # Called when the workers of a reload serve.
    #
    # @return [Array<Listener>] listeners that are no longer configured, now closed
    def settle
      @proxy&.settle(@before) if @before
      @before = nil
      @listener_set.settle
    end

    # Called when a reload has failed after #reload. Restores the configuration from before.
    def undo
      before, @before = @before, nil
      return if before.nil?

      @listener_set.undo
      configure(before)
    rescue Error => e
      @configuration = before
      Log.line(e.message, :error)
    end

    # Called when all workers of a generation serve.
    def ready = Log.say("Fastrack is ready Workers:#{worker_processes} Pid:#{Process.pid}")

    # Called when all other processes have exited, and the server is to start again. As before USR2 starts a new master: the hook may change
    # ENV for the new start.
    def restarting
      ENV.replace(StartCommand.current.environment)
      hooks.call_hook(:before_exec)
    end

    # @!visibility private
    # @return [MasterHooks] of this process
    def hooks = (@mold || @master).hooks

    # Called in a mold.
    #
    # @param mold [Mold]
    def molded(mold)
      @mold = mold
    end

    # Called in a forked process, which inherits rackup's at_exit hook. The hook removes the file that this String names. An empty String
    # names none.
    def disown_pid_file
      @rackups_pid_file.replace("") if @rackups_pid_file.is_a?(String) && !@rackups_pid_file.frozen?
    end

    # @return [Boolean] whether rackup or another program has loaded the app in the master
    def loaded? = @loaded

    # @return [Boolean] whether the master becomes the parent of workers that a mold has forked
    def subreaper? = @subreaper

    # @return [#close, nil] see #run
    attr_reader :waiting

    # @return [Boolean] whether there is no terminal to write to
    def background? = @background

    # Called in a worker that a mold has forked. The mold has no listeners and no queue, so the worker gets the master's.
    #
    # @param sockets [Hash{Integer => Socket}] those of the listeners, by identity. Listeners without one have ended: the configuration has
    #   changed, or the mold had opened them in an after_fork, as a worker
    # @param queue [Array<IO>] descriptors of the shared queue
    # @param master [Integer] its pid
    def take_over(sockets, queue, master)
      open, ended = listeners.partition { |listener| sockets.key?(listener.identity) }
      listeners.replace(open)
      @listener_set.former.concat(ended)
      open.each { |listener| listener.renew(sockets.delete(listener.identity)) }
      sockets.each_value(&:close)
      # The queue duplicates the descriptors.
      @queue = SharedQueue.of_master(queue.map(&:fileno), master) if queue.any?
      queue.each(&:close)
    end

    # Loads new code, for Puma's plugins. In development the server starts again in the same process: a terminal, foreman or a container
    # would take a new process for the end of the server. A server that is stopping does not start again.
    #
    # @return [String] the way, for the log
    def restart
      return @mold.tell(ControlChannel::RESTART) if @mold

      in_place = @loaded && @configuration.development? && !@background && !supervised?
      return (@loaded ? "USR2" : "HUP").tap { |signal| Process.kill(signal, Process.pid) } unless in_place

      @master.restart
      "in this process"
    end

    # @return [String] for ps(1)
    def title(role)
      tag = @configuration&.puma&.tag
      "fastrack #{role}#{" [#{tag}]" if tag}"
    end

    # @return [Integer] wanted number of workers, by Unicorn's name
    def worker_processes = @seat ? @configuration.max_workers : @master.worker_processes

    # Sends stdout and stderr to the log files. Without buffers: readers follow the log, and a killed worker must not lose lines.
    def redirect_output
      return if @redirected

      @redirected = true
      @process_setup.redirect(@background ? File.open(File::NULL, "w") : nil)
      Log.flush
      # The app may have replaced $stdout and $stderr by objects that write to STDOUT and STDERR.
      [$stdout, $stderr, STDOUT, STDERR].each { |stream| stream.sync = true if stream.respond_to?(:sync=) }
      LogFiles.remember
    end

    private

    # Takes over what the process that has started this one leaves to it.
    def inherit
      EarlyErrors.take_over
      LastWords.take_over
      @seat = Seat.take_over
      @master_pid = @seat&.master || Process.pid
    end

    # @return [Hash] options with a pid file of their own: another generation 0 reads them later
    def keep_pid_file(options)
      @rackups_pid_file = options[:pid]
      @rackups_pid_file ? options.merge(pid: @rackups_pid_file.dup) : options
    end

    def fail_start(error)
      unless @master
        LastWords.say(error)
        @first_reading&.abandon
      end
      LastWords.say_to_old(error)
    end

    def become_master
      @subreaper = Fastrack.adopt_orphans
      @roots = RootsProgram.take_over
      @configuration = read
      find_names
      apply_settings
      RootsProgram.keep_load_path unless loaded?
      old_master = OldMaster.take_over
      @queue = OldMaster.take_over_queue(@configuration.hand_over)
      @listener_set = ListenerSet.new(@configuration)
      note_loaded if loaded?
      @master = Master.new(self, @app, old_master)
    end

    # Reads the ConfigFile, in another process where the app is not loaded yet. A logger is an object of the process that writes the lines, so
    # the master reads a ConfigFile with one as well, unless root has run again (USR2).
    def read
      return @reading.call if loaded?

      @first_reading = FirstReading.new(self, @app, @roots&.user)
      @first_reading.configuration do |settings|
        SafeFile.user = @roots&.user
        logger = settings.dig("values", "Logger")
        next extend_load_path.then { @reading.call(output: Seat::Lines.new, warnings: Seat::Lines.new) } if logger && @roots.nil?

        Log.line("the logger gets no lines of the master, because root does not read the ConfigFile at USR2; a start changes that", :warn) if logger
        HandedConfiguration.at_start(*@options, settings, @roots)
      end
    end

    def extend_load_path = (@app.extend_load_path if @app.respond_to?(:extend_load_path))

    # Paths and addresses that a re-exec by root has found in a ConfigFile of the app's user are not root's words.
    def find_names
      found = Reading.names(@configuration)
      @names = @roots&.names || found
      SafeFile.foreign = found - @names
    end

    # Makes this process a generation 0 of another process's.
    #
    # @param starting [Boolean] whether to open logs, which later ones have from the master
    def take_seat(starting = false) # rubocop:disable Style/OptionalBooleanParameter
      extend_load_path
      @configuration = @seat.read { |lines| @reading.call(**lines).tap { |configuration| ProcessSetup.new(configuration).enter } }
      @seat.settle(@configuration)
      @process_setup = ProcessSetup.new(@configuration)
      @process_setup.apply if starting
      @process_setup.format_log
      @subreaper = @seat.subreaper?
      @listener_set = @seat
      @background = @seat.background?
      @access_log = starting ? @process_setup.access_log : @seat.access_log
      [$stdout, $stderr, STDOUT, STDERR].each { |stream| stream.sync = true if stream.respond_to?(:sync=) }
      LogFiles.remember
    end

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

    def configure(configuration)
      settings = ProcessSetup.new(configuration)
      settings.apply
      replace_access_log(settings.access_log)
      settings.redirect
      settings.format_log
      LogFiles.remember
      @configuration = configuration
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
      redirect_output
      yield if block_given?
      @configuration.puma&.write_state
      @master.start_plugins
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

    def note_loaded
      no_effect(:PreloadApp, "the app is already loaded; use `fastrack` to load it in each worker") unless @configuration.preload_app
      no_effect(:DefaultMiddleware, "rackup has already added it") unless @configuration.default_middleware || @configuration.puma
      Log.line("rackup in a puma.rb has no effect: the app is already loaded") if @configuration.puma&.rackup
    end

    def no_effect(option, reason) = Log.line("#{@configuration.source(option)} has no effect: #{reason}")
  end
end
