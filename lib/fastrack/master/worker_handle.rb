# frozen_string_literal: true

require_relative "../log"
require_relative "../process/memory"
require_relative "../process/proc_stat"
require_relative "../worker"
require_relative "../worker/control_channel"
require_relative "lingering"
require_relative "worker_exit"

module Fastrack
  # The master's view of a worker: state, channel and scoreboard entry.
  #
  #     booting --ready--> serving --stop--> stopping (lingering) --> (reaped)
  #                                             | (promoted)
  #                                             +-> mold
  #
  # A worker that reaches its request limit and cannot be spared serves on.
  class WorkerHandle
    include LingeringWorker

    # Keys of /proc/PID/status whose values stay equal while a process stands still, see proc(5).
    STANDSTILL = %w[State voluntary_ctxt_switches nonvoluntary_ctxt_switches].freeze
    private_constant :STANDSTILL

    # Seconds from the end of a channel to the end of its process. Between the two the kernel closes the process's files.
    TIME_TO_EXIT = 1

    # Most characters of what is no message, for the log.
    LONGEST_QUOTE = 100

    # Seconds between two orders to stop.
    STOP_INTERVAL = 1

    attr_reader :nr, :pid, :generation, :channel, :state

    # @return [Symbol, nil] why the worker is or was replaced: see Scoreboard#count_restart
    attr_reader :cause

    # @return [Float] monotonic seconds
    attr_reader :spawned_at

    # @return [Float, nil] monotonic seconds when the worker was told to stop or, if later, had served its last request
    attr_reader :stopping_since

    # @param nr [Integer] slot of the worker
    # @param process [HeldChild, GrandChild]
    # @param channel [ControlChannel] the master's end
    # @param entry [Array(Scoreboard, Integer), nil] scoreboard entry of the worker; nil when the scoreboard is full
    # @param stop_signal [String]
    # @param from [Symbol] who writes into the channel: see Message::KINDS
    def initialize(nr, process, generation, channel, entry, spawned_at, stop_signal = "QUIT", from: :worker)
      @nr = nr
      @process = process
      @pid = process.pid
      @generation = generation
      @channel = channel
      @channel.from = from
      @entry = entry
      @spawned_at = spawned_at
      @stop_signal = stop_signal
      @state = :booting
      @ready = false
      @killed = nil
      @draining = false
      @ended = false
      @promoted = @rejected = false
      @failed_boots = 0
    end

    # Tells the worker to begin, because the master now has this handle.
    def known
      scoreboard(:assign, @nr, @pid, @generation)
      @hijacked = hijacked
      @channel.write(ControlChannel::KNOWN)
    end

    def booting? = @state == :booting

    def serving? = @state == :serving

    def stopping? = @state == :stopping

    # Whether this process forks workers, and serves nobody.
    def mold? = @state == :mold

    # Whether this process is generation 0: see MoldHandle.
    def first? = false

    # Whether this process is a worker, and never was a mold.
    def worker? = !first? && !@molded

    # Marks a worker of code that has failed. It is replaced.
    def reject = @rejected = true

    def rejected? = @rejected

    # @return [String] for the log
    def name = "#{@molded ? "the mold" : "worker #{@nr}"} (pid #{@pid})"

    # Marks a worker that will be replaced once its successor is ready.
    #
    # @param purpose [Symbol, nil] :mold if the worker then becomes the mold, :trial if the successor is the mold's first worker; nil: the
    #   worker stays
    def retire(purpose)
      @retiring = purpose
    end

    # @return [Symbol, nil] see #retire
    def retiring
      @retiring if serving?
    end

    # Makes the worker the mold after its last request.
    def promote
      @promoted = true
      @channel.from = :promoted
      @channel.write(ControlChannel::PROMOTE)
      stop(:refork)
    end

    # @return [Integer, nil] requests that the mold had answered as a worker
    attr_reader :served

    # @return [WorkerHandle, nil] the mold that this worker was forked from; nil: generation 0
    attr_accessor :origin

    # @return [Integer] how many workers of this mold failed to boot, one after the other
    attr_accessor :failed_boots

    # Called when the worker has become the mold and waits for orders.
    def molded
      return if @molded

      @molded = true
      @state = :mold
      @served = requests
      @memory = noted_memory
      @stopping_since = @told_at = nil
      release_entry
    end

    # Has a mold call the hooks of an event.
    #
    # @param name [String, Symbol]
    # @param numbers [Array<Integer>]
    # @return [Integer, nil] nil if it cannot be sent
    def event(name, *numbers) = @channel.write([ControlChannel::EVENT, name, *numbers].join(" "))

    def draining? = @draining

    # Whether the worker has ever been ready.
    def ready? = @ready

    # @return [Symbol, nil] why the worker is stopped as soon as it can be spared: it is past its request limit, or takes too much memory
    attr_reader :past_limit

    # @param cause [Symbol] see #stop
    def recycle(cause)
      @past_limit ||= cause
    end

    # @return [Integer] requests that the worker has answered
    def requests = scoreboard(:read)&.fetch(:requests) || 0

    # @return [ProcessMemory, nil] memory of the worker; nil if unknown, as after its end, or while a worker of another user boots
    def memory = ProcessMemory.of(@pid) || noted_memory

    # @return [ProcessMemory, nil] figures that the worker has written itself: see MemoryNote
    def noted_memory = @memory || scoreboard(:read)&.fetch(:memory)&.then { |figures| ProcessMemory.new(*figures) }

    def busy? = !current.nil?

    # Whether the worker still runs a moment after its channel was closed: then the app has closed all sockets. During a request the process
    # may have become another program (exec), which gets the request's time.
    #
    # @param now [Float] monotonic seconds
    def disconnected?(now)
      return true if broken? && !stopping?
      return false if @reconsidered_at.nil? || now < @reconsidered_at || stopping?

      entry = current
      entry.nil? || entry[:started] > @reconsidered_at - TIME_TO_EXIT
    end

    # @return [Float, nil] monotonic seconds by which a worker with a closed channel has been reaped, if it has exited
    attr_reader :reconsidered_at

    def killed? = !@killed.nil?

    # Called when READY has arrived.
    #
    # @param drain [Boolean] whether the worker has to drain; an earlier signal may have come before its handler
    def ready(drain: false)
      @ready = true
      @state = :serving if booting?
      self.drain if drain || @draining
    end

    # Called when the worker has served, for any reason. A worker that has not booted counts as a failure. The hooks get a time of their
    # own.
    def ending
      @ended = true
      @state = :stopping if serving?
      @stopping_since = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    # @return [Array<Message>] those that have arrived
    def messages
      found = @channel.read
      return found if found && !@channel.broken

      reject_words if @channel.broken
      @channel.close
      @reconsidered_at = Process.clock_gettime(Process::CLOCK_MONOTONIC) + TIME_TO_EXIT
      found.to_a
    end

    # Whether the process has said what is no message. It is replaced.
    def broken? = !@channel.broken.nil?

    # False once the worker has exited, or is about to exit.
    def connected? = !@channel.closed?

    # Answers LIMIT_REACHED. One that is promoted has been told to stop, and reads that instead.
    def answer(may_exit)
      return if @promoted

      if may_exit
        @channel.write(ControlChannel::GO)
        # The worker may have stopped waiting for the answer, so a signal follows.
        stop(@past_limit || :request_limit)
      else
        recycle(:request_limit)
        @channel.write(ControlChannel::STAY)
      end
    end

    # Lets the worker finish its request and exit.
    #
    # @param cause [Symbol, nil] why the worker is replaced: see Scoreboard#count_restart; nil if it is not replaced
    def stop(cause = nil)
      return release_mold if mold?

      @cause ||= cause || :none
      @state = :stopping
      @told_at = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      @stopping_since ||= @told_at
      signal(@stop_signal)
    end

    # Repeats the order to stop if the worker has no request, and has not sent ENDING. A signal is lost where Ruby has no room on the stack
    # for the handler, or while the app ignores the signal.
    #
    # @param now [Float] monotonic seconds
    # @return [Float, nil] monotonic seconds of the next repetition
    def stop_again(now)
      return if @told_at.nil? || @ended || lingering?

      at = @told_at + STOP_INTERVAL
      return at if now < at

      signal(@stop_signal) unless busy?
      @told_at = now
      now + STOP_INTERVAL
    end

    # Asks the worker whether a debugger handles INT.
    def ask_for_interrupt
      @interrupt_taken = nil
      signal(Worker::INTERRUPT_SIGNAL)
    end

    # @return [Boolean, nil] answer of the worker; nil: none yet
    attr_accessor :interrupt_taken

    # Makes the worker log its threads' backtraces, for a developer.
    def log_backtraces = signal(Worker::BACKTRACE_SIGNAL)

    def profile = signal(Engine::PROFILE_SIGNAL)

    # Makes the worker log its threads' backtraces, because it is late.
    def dump_threads = signal(Engine::THREAD_DUMP_SIGNAL)

    # Makes the worker close connections after each response. Before the worker stops it serves all requests that have arrived.
    def drain
      @draining = true
      signal(Worker::DRAIN_SIGNAL)
    end

    # @param why [String] for the log
    def kill(why)
      @killed ||= why
      @cause ||= booting? ? :boot : :worker_timeout
      @state = :stopping
      # A process that no signal reaches is given up: its mold may have named another user's.
      signal(:KILL) || @process.child? || @channel.close
    end

    def reopen_logs = signal(Worker::LOG_SIGNAL)

    # @param now [Float] monotonic seconds
    # @return [String, nil] the current request, or the request at the worker's death, for the log
    def request(now)
      entry = current or return
      seconds = format("%.1f", [now - entry[:started], 0].max)
      "#{"callbacks of " if entry[:callbacks]}#{entry[:line] || "a request"} for #{seconds} s#{", request id #{entry[:id]}" if entry[:id]}"
    end

    # @return [Float, nil] monotonic seconds at which the request has to be done; nil without a request or a limit
    def deadline = current&.fetch(:deadline)

    # @param now [Float] monotonic seconds
    # @return [Float, nil] monotonic seconds since when the process has been stopped (SIGSTOP, a debugger), as far as calls of this method
    #   tell
    def suspended_since(now)
      found = ProcStat.status(@pid).slice(*STANDSTILL)
      # A traced process stops again and again, and runs in between.
      since = @standstill == found ? @suspended_since : now
      @standstill = found
      @suspended_since = found["State"]&.match?(/\At/i) ? since : nil
    rescue SystemCallError
      # The process has been reaped, or the system has no /proc.
      nil
    end

    # Notes the status of a process that only its mold can wait for.
    #
    # @param number [Integer] see wait(2)
    def reaped(number) = (@process.reaped(number) unless @process.child?)

    # @param now [Float] monotonic seconds
    # @return [WorkerExit, nil] nil while the process runs
    def reap(now)
      # The status is nil if a part of the app waits for all children, and was faster. On macOS workers are children of their mold, which
      # may hang.
      exited(@process.status, now) if @process.ended? || (killed? && !connected? && !@process.child?)
    end

    # @return [Integer, nil] slot in the scoreboard
    def slot = @entry&.last

    # Lets Ruby reap the process, because the master no longer does.
    def detach
      @channel.close
      release_entry
      @process.detach
    end

    private

    def exited(status, now)
      # The worker's last message may be unread.
      @state, @ready = :serving, true if booting? && connected? && messages.any? { |message| message.kind == ControlChannel::READY }
      @channel.close
      timed_out = scoreboard(:read)&.fetch(:state) == :ending
      WorkerExit.new(status: status, state: @state, timed_out: timed_out, request: request(now), killed_for: @killed).tap do |exit|
        count_restart(exit)
        release_entry
      end
    end

    def count_restart(exit)
      @cause = exit.cause if @cause.nil? || (exit.sudden? && !@killed)
      @entry&.first&.count_restart(@cause.to_s) unless @cause == :none
    end

    # Ends a mold by the end of its channel. A mold that is loading the app knows by GO that the master lives.
    def release_mold
      @channel.write(ControlChannel::GO)
      @state = :stopping
      @stopping_since = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      @channel.close
    end

    def hijacked = scoreboard(:counts)&.fetch(:hijacked)

    # @return [Hash, nil] scoreboard entry while the worker has a request, or callbacks of one
    def current = scoreboard(:read)&.then { |entry| entry unless entry[:state] == :waiting }

    def release_entry
      scoreboard(:release)
      @entry = nil
    end

    # @return result of a method of the scoreboard for this worker's entry; nil without an entry
    def scoreboard(name, *arguments)
      board, slot = @entry
      board&.public_send(name, slot, *arguments)
    end

    # A worker that serves finishes its requests: see Workers#recycle. No other process has clients.
    def reject_words
      Log.line("#{name} has said what is no message: #{@channel.broken[0, LONGEST_QUOTE].inspect}", :error)
      kill("it has said what is no message") if booting? || mold?
    end

    def signal(name) = @process.signal(name)
  end
end
