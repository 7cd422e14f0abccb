# frozen_string_literal: true

require_relative "configuration/unicorn_api"
require_relative "gc/figures"
require_relative "log"
require_relative "process/signal_trap"
require_relative "process/guards"
require_relative "process/last_words"
require_relative "text"
require_relative "worker/control_channel"
require_relative "worker/engine_builder"
require_relative "worker/exit_hooks"
require_relative "worker/linger"
require_relative "worker/profile"
require_relative "worker/promoted_mold"
require_relative "worker/threads"

module Fastrack
  # A process that serves requests. The master creates the object before the fork, as an argument of hooks.
  class Worker
    include UnicornWorkerApi

    STOP_SIGNALS = %w[TERM QUIT].freeze
    # Signals for the master, which a terminal sends to all processes. Workers handle these signals instead of ignoring them, because
    # commands that the app starts would inherit ignored signals.
    MASTER_SIGNALS = %w[INT HUP TTIN TTOU WINCH].freeze

    # Makes a worker drain. Only the master sends it. By default the signal is ignored, so that it is safe before the worker has a handler.
    DRAIN_SIGNAL = "URG"

    # Asks whether something in the app handles INT. The master sends the signal in development.
    INTERRUPT_SIGNAL = "USR2"

    # Makes a worker reopen log files. The master sends the signal after it has reopened its own files.
    LOG_SIGNAL = "USR1"

    # Logs backtraces: SIGINFO where there is one (Ctrl-T), else PWR, as in Puma on Linux.
    BACKTRACE_SIGNAL = Signal.list.key?("INFO") ? "INFO" : "PWR"

    # Seconds for threads to wake up at the end of the worker. Also the least time for hooks, because GracefulTimeout may be 0.
    LEAST_TIME = 1

    # @return [Integer] slot of the worker, from 0
    attr_reader :nr

    # @return [Array(Scoreboard, Integer), nil]
    attr_reader :scoreboard_entry

    # @param launcher [Launcher]
    # @param app [#call, AppFile] a worker loads an AppFile
    # @param scoreboard_entry [Array(Scoreboard, Integer), nil]
    def initialize(nr, launcher, app, scoreboard_entry)
      @nr = nr
      @launcher = launcher
      @configuration = launcher.configuration
      @app = app
      @scoreboard_entry = scoreboard_entry
      @engine = nil
      @creates_engine = @must_stop = @lost = false
    end

    # QUIT, because in Heroku's recipe for Unicorn workers ignore TERM, which a platform sends to all processes at once. TERM at a
    # developer's terminal, where Ctrl-\ sends QUIT to all processes.
    #
    # @return [String] the signal by which the master stops this worker
    def stop_signal = @launcher.interactive? ? "TERM" : "QUIT"

    # The life of the process from the fork on. Returns when the worker has served and at_exit hooks are to run. Ends the process on
    # failure.
    #
    # @param channel [ControlChannel] to the master
    # @param signals [SignalQueue] the master's
    # @param pending [Integer] size of the queue before the fork
    # @param death_pipe [IO] at end of file when the master is dead
    # @return [Integer] the exit status
    def live(channel, signals, pending, death_pipe)
      take_signals(signals, pending, channel)
      ExitHooks.begin_worker
      @launcher.disown_pid_file
      ForkGuard.install { [@engine, death_pipe, channel, *@launcher.listeners, @launcher.queue, *@warm_up&.descriptors].compact }
      Fastrack.refork_forbids = -> { channel.write("#{ControlChannel::FORBID} #{Fastrack.refork_forbidden}") }
      status = status_of do
        prepare(channel, death_pipe)
        serve(channel)
      end
      status = status_of { become_mold(channel, death_pipe) } if status.zero? && promoted?(channel)
      # A worker that has lost its descriptors exits with 1: after a failure the next spawn waits for ErrRespawnInterval.
      [status, status_of { clean_up(channel) }, @lost ? 1 : 0].max.tap { |worst| QuickExit.install(worst) }
    rescue Exception => e # rubocop:disable Lint/RescueException -- nothing above would show it
      Log.exception("worker #{@nr} failed", e)
      LastWords.say(e)
      Log.flush
      exit!(1)
    end

    private

    # Name for the log, the same as the master's.
    def name = "#{@molded ? "the mold" : "worker #{@nr}"} (pid #{Process.pid})"

    def take_signals(signals, pending, channel)
      @pid = Process.pid
      stop_signals = STOP_SIGNALS.last == stop_signal ? STOP_SIGNALS : [stop_signal]
      (STOP_SIGNALS + MASTER_SIGNALS).each { |name| stop_signals.include?(name) ? take(name) { stop } : take(name) }
      @interrupt_handler = take("INT")
      # Log files are reopened outside of the handler, because a handler cannot wait for a stream's lock.
      take(LOG_SIGNAL) { @engine && !@threads && !@linger&.begun? ? @engine.pause : Thread.new { LogFiles.reopen } }
      take(DRAIN_SIGNAL) { @engine&.drain }
      take(INTERRUPT_SIGNAL) { channel.write(interrupt_taken? ? ControlChannel::INTERRUPT_TAKEN : ControlChannel::INTERRUPT_LEFT) }
      take(Engine::THREAD_DUMP_SIGNAL) { dump_threads(ThreadDump.text) }
      take(BACKTRACE_SIGNAL) { Log.line("#{name} is at:\n#{ThreadDump.text.chomp}") }
      take(Engine::PROFILE_SIGNAL) { @profile&.toggle } if Engine::PROFILE_SIGNAL
      trap("CHLD", "DEFAULT")
      early = signals.arrived_since_fork(pending)
      stop unless (early & stop_signals).empty?
      LogFiles.reopen if early.include?(LOG_SIGNAL)
    end

    # A process that the app forks inherits the handlers. In that process the signals have their default effect.
    #
    # @return [Proc] the handler
    def take(name)
      handler = proc do
        if Process.pid == @pid
          yield if block_given?
        else
          SignalTrap.trap(name, "DEFAULT")
          Process.kill(name, Process.pid)
        end
      end
      handler.tap { SignalTrap.trap(name, handler) }
    end

    # Looks at the current handler: a debugger has its own while it has a prompt.
    def interrupt_taken?
      found = trap("INT") { nil }
      trap("INT", found || "DEFAULT")
      !found.equal?(@interrupt_handler)
    end

    # Stops the worker. Works in a signal handler, too. Without an engine there are no requests yet, and a hook may run for a long time, so
    # the process exits.
    def stop
      if @engine
        @engine.stop
      else
        exit!(0) unless @creates_engine
        @must_stop = true
      end
    end

    # Hands the text to the watchdog if it has asked. Else logs the text, because the master is about to kill this worker.
    def dump_threads(text)
      Log.line("#{name} takes too long:\n#{text.chomp}") unless @engine&.thread_dump(text)
    end

    def prepare(channel, death_pipe)
      Process.setproctitle(@launcher.title("worker[#{@nr}]"))
      # All workers begin with the same random numbers. Limits are drawn early, because a hook may seed all workers alike.
      srand
      @full_marks = full_marks
      @hijacked = hijacked
      @orphan_guard = OrphanGuard.start(death_pipe, channel, name)
      @request_limit = @configuration.draw_request_limit
      settings = EngineBuilder.new(@launcher, channel, gc_interval: @configuration.draw_gc_interval)
      ExitHooks.during { @configuration.call_hook(:after_fork, @launcher, self) }
      @app = @loaded = @app.respond_to?(:call) ? @app : @configuration.load_app(@app)
      @app = @configuration.wrap(@app)
      warm_up
      start_engine(settings, channel, death_pipe)
      # The engine has copies of these descriptors, and closes the copies when it stops. Then nothing holds the port.
      [*@launcher.listeners, @launcher.queue].compact.each(&:close)
    end

    # Asks once for each page that generation 0 has asked for: no client is to wait for a connection to the database, or for copies of shared
    # memory.
    def warm_up
      return unless defined?(WarmUp) && WarmUp.pages

      @warm_up = WarmUp.new(@configuration, @app, wrapped: true)
      report = @warm_up.run_once
      Log.line("#{name}: #{report.line}", :warn) if report.failure
      @warm_up = nil
    end

    def start_engine(settings, channel, death_pipe)
      # Once the engine exists other workers hand connections over to this worker, which must serve them before it ends.
      @creates_engine = true
      @memory_note = MemoryNote.for(@scoreboard_entry)
      # Limits the time without a master. The engine does that, because the app may hang.
      orphan = { orphan_time: time_to_end, orphan_line: unfinished_line("", " after the end of its master") }
      @engine = settings.engine(slot: @scoreboard_entry, master_fd: death_pipe.fileno, nr: @nr, memory_note: @memory_note, **orphan)
      @profile = WorkerProfile.new(@engine, channel)
      @linger = Linger.new(@engine, channel, @configuration.linger.positive?)
      @engine.stop if @must_stop
    end

    # Starts threads, so that MaxThreads serve: with the main thread, unless there may be streams.
    def start_threads
      @main_serves = @configuration.max_streams.zero?
      call_thread_hook(:on_thread_start) if @main_serves
      return unless @configuration.multithread?

      Fastrack.share_malloc_arena
      @threads = WorkerThreads.new(@engine, @app, method(:call_thread_hook))
      @threads.start(@configuration.max_threads, main: @main_serves)
    end

    # Logs a failed hook. The thread serves nevertheless.
    def call_thread_hook(word)
      @configuration.call_hook(word, @launcher, self)
    rescue StandardError, ScriptError => e
      Log.exception("#{word} failed", e)
    end

    def serve(channel)
      start_threads
      ExitHooks.during { @configuration.call_hook(:after_worker_ready, @launcher, self) }
      @orphan_guard.kill.join
      @memory_note&.write
      channel.write(ControlChannel::COPIES_CODE) if copies_code?
      channel.write(ControlChannel::READY)
      # A worker that cannot be spared serves until the master sends a signal.
      (may_exit?(channel) ? finish : run(0)) if run(@request_limit) == :limit
      @linger.await_sockets unless @lost
    rescue SystemExit
      # The app ends this process. The other clients are still served.
      finish
      raise
    ensure
      @profile&.finish
      channel.write(ControlChannel::ENDING)
    end

    # An app may turn YJIT on while it is loaded, as Rails does.
    def copies_code? = PromotedMold::FULL_MARK_DROPS_CACHES && defined?(RubyVM::YJIT.enabled?) && RubyVM::YJIT.enabled?

    # Serves, and reopens log files between two requests, because a reopened file could fail a write of a request.
    #
    # @param limit [Integer] requests to serve; 0: any number
    # @return [Symbol] see Engine#run
    def run(limit)
      last = @engine.requests + limit
      loop do
        finish = @engine.run(@app, limit)
        @lost = finish == :lost
        case finish
        when :streaming
          limit = 0
          @linger.begin
        when :paused
          @threads&.check
          LogFiles.reopen
        else return finish
        end
        next if limit.zero?

        limit = last - @engine.requests
        return :limit unless limit.positive?
      end
    end

    # Serves only requests that have begun to arrive.
    def finish
      @engine.stop
      run(0)
    rescue SystemExit
      # The loop ends, because each retry has one request less.
      retry
    end

    # Seconds for this process to end, in addition to those of its requests.
    def time_to_end = [@configuration.graceful_timeout, LEAST_TIME].max

    # @param text [String] between "has not finished" and "within 30 s"
    # @param after [String] after "within 30 s"
    # @return [String] the line for the log when #time_to_end is over
    def unfinished_line(text = "", after = "") = "fastrack: #{name} has not finished #{text}within #{format("%g", time_to_end)} s#{after}: ending it\n"

    # @yield to code that may call exit
    # @return [Integer] the status of the call of exit; 0 without one
    def status_of
      yield
      0
    rescue SystemExit => e
      at = e.backtrace&.first&.then { |frame| ", at #{Text.utf8(frame)}" }
      Log.repeated([:exit_called, e.status, at]) { "exit(#{e.status}) was called in #{name}#{at}" }
      e.status
    end

    # Ends threads and runs hooks after the last client. The time is limited, because a hook may hang after the master's end, too.
    def clean_up(channel)
      channel.write(ControlChannel::ENDING)
      ChildProcess.end_within(time_to_end, Scoreboard::TIMEOUT_STATUS, unfinished_line("before_worker_shutdown and at_exit hooks "))
      # Without an engine the worker has not booted.
      return unless @engine

      begin
        end_threads
      ensure
        # Runs also if a thread's hook calls exit.
        @configuration.call_hook(:before_worker_shutdown, @launcher, self)
      end
    rescue StandardError, ScriptError => e
      Log.exception("before_worker_shutdown failed", e)
    end

    # Ends the threads once. A mold has ended them before.
    def end_threads
      return if @threads_ended

      @threads_ended = true
      @threads&.stop(@lost ? 0 : LEAST_TIME)
      call_thread_hook(:on_thread_exit) if @main_serves
    end

    # Whether the master has promoted this worker to the mold. A worker that has lingered is not promoted: its clients may still be there.
    def promoted?(channel)
      !@lost && !@linger&.begun? && (@promoted || channel.read.to_a.any? { |message| message.kind == ControlChannel::PROMOTE })
    rescue IOError
      # The app has closed the channel.
      false
    end

    # Runs the mold until its end.
    def become_mold(channel, death_pipe)
      end_threads
      # Ends the helper thread, and closes the engine's descriptors.
      @engine.release
      PromotedMold.new(@launcher, @loaded, channel, death_pipe).run(self, marked: full_marks != @full_marks, hijacked: hijacked != @hijacked) do
        @molded = true
        @memory_note&.write
      end
    end

    # @return [Integer, nil] how many connections the app has taken over
    def hijacked = @scoreboard_entry&.then { |board, slot| board.counts(slot)&.fetch(:hijacked) }

    def full_marks = GCFigures.stat(:major_gc_count)

    # @return [Boolean] false without an answer: the master also sends a signal
    def may_exit?(channel)
      channel.write(ControlChannel::LIMIT_REACHED)
      # The answer comes at once, unless the master is stopped (SIGSTOP).
      messages = channel.to_io.wait_readable(1) ? channel.read : []
      kinds = messages&.map(&:kind)
      @promoted = kinds&.include?(ControlChannel::PROMOTE)
      kinds.nil? || kinds.include?(ControlChannel::GO)
    rescue IOError
      # The app has closed the channel, and the master has noticed that.
      true
    end
  end
end
