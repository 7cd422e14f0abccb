# frozen_string_literal: true

require_relative "configuration/unicorn_api"
require_relative "gc/figures"
require_relative "log"
require_relative "process/guards"
require_relative "process/last_words"
require_relative "text"
require_relative "worker/control_channel"
require_relative "worker/engine_builder"
require_relative "worker/mold"
require_relative "worker/threads"

module Fastrack
  # A process that serves requests. The master creates the object before the fork, for its hooks.
  class Worker
    include UnicornWorkerApi

    STOP_SIGNALS = %w[TERM QUIT].freeze
    # These are the master's: a terminal sends them to all processes. They are handled, not ignored, because commands that
    # the app starts would inherit that.
    MASTER_SIGNALS = %w[INT HUP TTIN TTOU WINCH].freeze

    # Drains, sent by the master only. Its default is to be ignored, so that it is safe before there is a handler.
    DRAIN_SIGNAL = "URG"

    # Asks whether something in the app handles INT. The master sends it, in development.
    INTERRUPT_SIGNAL = "USR2"

    # Reopens log files. The master sends it after it has reopened its own.
    LOG_SIGNAL = "USR1"

    # Logs backtraces: SIGINFO where there is one (Ctrl-T), else what Puma takes on Linux.
    BACKTRACE_SIGNAL = Signal.list.key?("INFO") ? "INFO" : "PWR"

    # Seconds for threads to wake up at its end, and for hooks if GracefulTimeout is less: that may be 0.
    LEAST_TIME = 1

    # @return [Integer] its slot, from 0
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

    # By QUIT: in Heroku's recipe for Unicorn workers ignore TERM, which a platform sends to all processes at once. But at a
    # developer's terminal QUIT is Ctrl-\, which all processes get.
    #
    # @return [String] what the master stops it with
    def stop_signal = @launcher.interactive? ? "TERM" : "QUIT"

    # The life of the process, from the fork on. Returns when it has served and at_exit hooks are to run; ends the process
    # if it fails.
    #
    # @param channel [ControlChannel] to the master
    # @param signals [SignalQueue] the master's
    # @param pending [Integer] its size before the fork
    # @param death_pipe [IO] at end of file when the master is dead
    # @return [Integer] the exit status
    def live(channel, signals, pending, death_pipe)
      take_signals(signals, pending, channel)
      LastWords.close_old
      @configuration.disown_pid_file
      ForkGuard.install { [@engine, death_pipe, channel, *@launcher.listeners, @launcher.queue].compact }
      Fastrack.refork_forbids = -> { channel.write(ControlChannel::FORBID) }
      status = status_of do
        prepare(channel, death_pipe)
        serve(channel)
      end
      status = status_of { become_mold(channel, death_pipe) } if status.zero? && promoted?(channel)
      # A worker that has lost its descriptors has failed: that spaces its successors.
      [status, status_of { clean_up(channel) }, @lost ? 1 : 0].max.tap { |worst| QuickExit.install(worst) }
    rescue Exception => e # rubocop:disable Lint/RescueException -- nothing above would show it
      Log.exception("worker #{@nr} failed", e)
      LastWords.say(e)
      Log.flush
      exit!(1)
    end

    private

    # For the log.
    def name = "worker #{@nr} (pid #{Process.pid})"

    def take_signals(signals, pending, channel)
      @pid = Process.pid
      stop_signals = STOP_SIGNALS.last == stop_signal ? STOP_SIGNALS : [stop_signal]
      (STOP_SIGNALS + MASTER_SIGNALS).each { |name| stop_signals.include?(name) ? take(name) { stop } : take(name) }
      @interrupt_handler = take("INT")
      # Not in the handler itself: it cannot wait for a stream's lock.
      take(LOG_SIGNAL) { @engine && !@threads ? @engine.pause : Thread.new { LogFiles.reopen } }
      take(DRAIN_SIGNAL) { @engine&.drain }
      take(INTERRUPT_SIGNAL) { channel.write(interrupt_taken? ? ControlChannel::INTERRUPT_TAKEN : ControlChannel::INTERRUPT_LEFT) }
      take(Engine::THREAD_DUMP_SIGNAL) { dump_threads(ThreadDump.text) }
      take(BACKTRACE_SIGNAL) { Log.line("#{name} is at:\n#{ThreadDump.text.chomp}") }
      trap("CHLD", "DEFAULT")
      early = signals.arrived_since_fork(pending)
      stop unless (early & stop_signals).empty?
      LogFiles.reopen if early.include?(LOG_SIGNAL)
    end

    # A process that the app forks inherits the handlers. There the signals do what they do by default.
    #
    # @return [Proc] the handler
    def take(name)
      handler = proc do
        if Process.pid == @pid
          yield if block_given?
        else
          trap(name, "DEFAULT")
          Process.kill(name, Process.pid)
        end
      end
      handler.tap { trap(name, handler) }
    end

    # By the handler that is there: a debugger has its own while it has a prompt.
    def interrupt_taken?
      found = trap("INT") { nil }
      trap("INT", found || "DEFAULT")
      !found.equal?(@interrupt_handler)
    end

    # Also in a signal handler. Without an engine there are no requests yet, and a hook may run for a long time.
    def stop
      if @engine
        @engine.stop
      else
        exit!(0) unless @creates_engine
        @must_stop = true
      end
    end

    # For the watchdog if it asks, else for the master, which is about to kill this worker.
    def dump_threads(text)
      Log.line("#{name} takes too long:\n#{text.chomp}") unless @engine&.thread_dump(text)
    end

    def prepare(channel, death_pipe)
      Process.setproctitle(@launcher.title("worker[#{@nr}]"))
      # Until then all workers have the same random numbers. Limits are drawn before a hook can seed all workers alike.
      srand
      @full_marks = full_marks
      @orphan_guard = OrphanGuard.start(death_pipe, channel, name)
      @request_limit = @configuration.draw_request_limit
      settings = EngineBuilder.new(@launcher, channel, gc_interval: @configuration.draw_gc_interval)
      @configuration.call_hook(:after_fork, @launcher, self)
      @configuration.user&.switch
      @app = @loaded = @app.respond_to?(:call) ? @app : @configuration.load_app(@app)
      @app = @configuration.wrap(@app)
      start_engine(settings, death_pipe)
      # The engine has copies, and closes them when it stops: from then on nothing holds the port.
      [*@launcher.listeners, @launcher.queue].compact.each(&:close)
    end

    def start_engine(settings, death_pipe)
      # As soon as there is an engine other workers hand their connections over to it: this worker must serve them before it
      # ends.
      @creates_engine = true
      @memory_note = MemoryNote.for(@scoreboard_entry)
      @engine = settings.engine(slot: @scoreboard_entry, master_fd: death_pipe.fileno, nr: @nr, memory_note: @memory_note)
      @engine.stop if @must_stop
      @engine.catch_fatal_signals
      ExitGuard.install { @engine.prepare_exit }
    end

    # With the main thread there are as many as MaxThreads says.
    def start_threads
      call_thread_hook(:on_thread_start)
      return if @configuration.max_threads == 1

      Fastrack.share_malloc_arena
      @threads = WorkerThreads.new(@engine, @app, method(:call_thread_hook))
      @threads.start(@configuration.max_threads)
    end

    # One that fails is logged: the thread serves all the same.
    def call_thread_hook(word)
      @configuration.call_hook(word, @launcher, self)
    rescue StandardError, ScriptError => e
      Log.exception("#{word} failed", e)
    end

    def serve(channel)
      start_threads
      @configuration.call_hook(:after_worker_ready, @launcher, self)
      @orphan_guard.kill.join
      @memory_note&.write
      channel.write(ControlChannel::READY)
      return unless run(@request_limit) == :limit

      # If it cannot be spared now, it serves until the master sends a signal.
      may_exit?(channel) ? finish : run(0)
    rescue SystemExit
      # The app ends this process, but its other clients are still served.
      finish
      raise
    ensure
      channel.write(ControlChannel::ENDING)
    end

    # Reopens log files between two requests: a write to one in a request would fail.
    #
    # @param limit [Integer] requests to serve; 0: any number
    # @return [Symbol] see Engine#run
    def run(limit)
      last = @engine.requests + limit
      loop do
        finish = @engine.run(@app, limit)
        @lost = finish == :lost
        return finish_without_master if finish == :orphaned
        return finish unless finish == :paused

        @threads&.check
        LogFiles.reopen
        next if limit.zero?

        limit = last - @engine.requests
        return :limit unless limit.positive?
      end
    end

    # Serves only the requests that have begun to arrive.
    def finish
      @engine.stop
      run(0)
    rescue SystemExit
      # Each request that exits is one less.
      retry
    end

    # It is the master that would limit the time for this.
    def finish_without_master
      limit_time { |time| "#{time} after the end of its master" }
      finish
    end

    # Ends this process when GracefulTimeout is over once more.
    #
    # @yieldparam time [String] "within 30 s"
    # @yieldreturn [String] what has not finished, for the log
    def limit_time
      seconds = [@configuration.graceful_timeout, LEAST_TIME].max
      text = yield "within #{format("%g", seconds)} s"
      ChildProcess.end_within(seconds, Scoreboard::TIMEOUT_STATUS, "fastrack: #{name} has not finished #{text}: ending it\n")
    end

    # @yield what may call exit
    # @return [Integer] the status that it exits with; 0 if it does not
    def status_of
      yield
      0
    rescue SystemExit => e
      at = e.backtrace&.first&.then { |frame| ", at #{Text.utf8(frame)}" }
      Log.repeated([:exit_called, e.status, at]) { "exit(#{e.status}) was called in #{name}#{at}" }
      e.status
    end

    # From here on it has no clients. A hook that hangs must not keep it for ever, even if the master is gone.
    def clean_up(channel)
      channel.write(ControlChannel::ENDING)
      limit_time { |time| "before_worker_shutdown and at_exit hooks #{time}" }
      # Without an engine it has not booted.
      return unless @engine

      begin
        end_threads
      ensure
        # Also if that calls exit.
        @configuration.call_hook(:before_worker_shutdown, @launcher, self)
      end
    rescue StandardError, ScriptError => e
      Log.exception("before_worker_shutdown failed", e)
    end

    # Once: a mold has no threads any more when it ends.
    def end_threads
      return if @threads_ended

      @threads_ended = true
      @threads&.stop(@lost ? 0 : LEAST_TIME)
      call_thread_hook(:on_thread_exit)
    end

    # Whether the master wants it to be the mold now that it has served.
    def promoted?(channel)
      !@lost && (@promoted || channel.read.to_a.include?(ControlChannel::PROMOTE))
    rescue IOError
      # The app has closed the channel.
      false
    end

    # Until it is to end.
    def become_mold(channel, death_pipe)
      end_threads
      # Its helper thread ends, and its descriptors are closed.
      @engine.release
      Mold.new(@launcher, @loaded, channel, death_pipe).run(self, marked: full_marks != @full_marks) { @memory_note&.write }
    end

    def full_marks = GCFigures.stat(:major_gc_count)

    # @return [Boolean] false without an answer: the master also sends a signal
    def may_exit?(channel)
      channel.write(ControlChannel::LIMIT_REACHED)
      # The answer is immediate, unless the master is stopped (SIGSTOP).
      messages = channel.to_io.wait_readable(1) ? channel.read : []
      @promoted = messages&.include?(ControlChannel::PROMOTE)
      messages.nil? || messages.include?(ControlChannel::GO)
    rescue IOError
      # The app has closed the channel: the master has also noticed.
      true
    end
  end
end
