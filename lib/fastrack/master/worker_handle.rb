# frozen_string_literal: true

require_relative "../process/memory"
require_relative "../worker"
require_relative "../worker/control_channel"

module Fastrack
  # How a worker has exited.
  #
  # @attr status [Process::Status, nil] nil when some part of the app has waited for it
  # @attr state [Symbol] its last, see WorkerHandle
  # @attr timed_out [Boolean] whether it exited because of a request timeout
  # @attr request [String, nil] the request that it was serving
  # @attr killed_for [String, nil] why the master has killed it
  WorkerExit = Struct.new(:status, :state, :timed_out, :request, :killed_for, keyword_init: true) do
    # Whether a signal or a request timeout ended it, so that a replacement will probably not fail.
    def sudden? = killed? || timed_out

    # @return [Symbol] why a worker that nobody has told to stop is replaced: see Scoreboard#count_restart
    def cause
      return :request_timeout if timed_out
      return :signal if killed?
      return :boot if state == :booting

      failed? ? :failure : :exit
    end

    # Whether to log it.
    def notable? = failed? || !request.nil?

    # Whether a replacement may fail in the same way. An exit before READY is a failure even with status 0: a hook calls
    # exit.
    def failed?
      return state != :stopping if status.nil?

      !status.success? || state == :booting
    end

    # @return [String] for the log, after the worker's name
    def to_s
      request ? "#{manner} while serving #{request}" : manner
    end

    private

    def killed? = !status.nil? && status.signaled?

    def manner
      # Who reads SIGKILL looks for what the kernel has killed for want of memory.
      return "was killed by the master (#{killed_for})" if killed_for && killed? && status.termsig == Signal.list["KILL"]
      return "was killed by SIG#{Signal.signame(status.termsig) || status.termsig}" if killed?
      return "exited with status #{Scoreboard::TIMEOUT_STATUS} (request timeout)" if timed_out
      return "exited; its status is unknown, because the app has waited for it" if status.nil?
      return "exited with status #{status.exitstatus}" unless status.success?

      state == :booting ? "exited before it was ready" : "exited"
    end
  end

  # The master's view of a worker: its state, its channel and its scoreboard entry.
  #
  #     booting --ready--> serving --stop--> stopping --> (reaped)
  #                                             |  ^
  #                                   (promoted)+->mold
  #
  # A worker that reaches its request limit while it cannot be spared keeps serving.
  class WorkerHandle
    # What /proc says of a process that stands still, see proc(5).
    SUSPENSION = /^State:\s+t .*|^\w*voluntary_ctxt_switches:.*/i.freeze
    private_constant :SUSPENSION

    # Seconds from the end of its channel to the end of its process. Between the two the kernel closes its files.
    TIME_TO_EXIT = 1

    # Seconds between two orders to stop.
    STOP_INTERVAL = 1

    attr_reader :nr, :pid, :generation, :channel, :state

    # @return [Symbol, nil] why it has to be replaced, or was: see Scoreboard#count_restart
    attr_reader :cause

    # @return [Float] monotonic seconds
    attr_reader :spawned_at

    # @return [Float, nil] monotonic seconds when it was told to stop, or, if that is later, had served its last request
    attr_reader :stopping_since

    # @param nr [Integer] its slot
    # @param channel [ControlChannel] the master's end
    # @param entry [Array(Scoreboard, Integer), nil] its scoreboard entry; nil when the scoreboard is full
    # @param stop_signal [String]
    def initialize(nr, pid, generation, channel, entry, spawned_at, stop_signal = "QUIT")
      @nr = nr
      @pid = pid
      @generation = generation
      @channel = channel
      @entry = entry
      @spawned_at = spawned_at
      @stop_signal = stop_signal
      @state = :booting
      @ready = false
      @killed = nil
      @draining = false
      @ended = false
    end

    # The master has this handle: the worker may begin.
    def known
      scoreboard(:assign, @nr, @pid, @generation)
      @hijacked = hijacked
      @channel.write(ControlChannel::KNOWN)
    end

    def booting? = @state == :booting

    def serving? = @state == :serving

    def stopping? = @state == :stopping

    # Whether workers are forked from it: see Refork.
    def mold? = @state == :mold

    # @return [String] for the log
    def name = "#{@molded ? "the mold" : "worker #{@nr}"} (pid #{@pid})"

    # It is to make room for a successor when that serves.
    #
    # @param purpose [Symbol, nil] :mold if it becomes the mold then, :trial if the successor is the mold's first worker; nil: it stays
    def retire(purpose)
      @retiring = purpose
    end

    # @return [Symbol, nil] see #retire
    def retiring
      @retiring if serving?
    end

    # Has it become the mold when it has served.
    def promote
      @channel.write(ControlChannel::PROMOTE)
      stop(:refork)
    end

    # @return [Integer, nil] how many requests the mold had answered
    attr_reader :served

    # It waits for orders. Its worker has ended.
    def molded
      @molded = true
      @state = :mold
      @served = requests
      @memory = noted_memory
      @stopping_since = @told_at = nil
      release_entry
    end

    # Whether connections of its are the app's (Rack's hijack).
    def hijacked? = hijacked != @hijacked

    def draining? = @draining

    # Whether it has ever served.
    def ready? = @ready

    # @return [Symbol, nil] why it is to be stopped when it can be spared: it serves beyond its request limit, or takes too much
    #   memory
    attr_reader :past_limit

    # @param cause [Symbol] see #stop
    def recycle(cause)
      @past_limit ||= cause
    end

    # @return [Integer] how many it has answered
    def requests = scoreboard(:read)&.fetch(:requests) || 0

    # @return [ProcessMemory, nil] what it takes; nil if that is unknown, as of one that has ended, or that boots as another user's
    def memory = ProcessMemory.of(@pid) || noted_memory

    # @return [ProcessMemory, nil] what it has said itself: see MemoryNote
    def noted_memory = @memory || scoreboard(:read)&.fetch(:memory)&.then { |figures| ProcessMemory.new(*figures) }

    def busy? = !current.nil?

    # Whether it still runs a moment after its channel was closed: the app has closed all sockets. Where that request lasts on,
    # it may have become another program (exec), which gets the request's time.
    #
    # @param now [Float] monotonic seconds
    def disconnected?(now)
      return false if @reconsidered_at.nil? || now < @reconsidered_at || stopping?

      entry = current
      entry.nil? || entry[:started] > @reconsidered_at - TIME_TO_EXIT
    end

    # @return [Float, nil] monotonic seconds when one whose channel is closed must have been reaped if it has exited
    attr_reader :reconsidered_at

    def killed? = !@killed.nil?

    # Its READY has arrived.
    #
    # @param drain [Boolean] whether it has to drain; it may have been told so before it could hear it
    def ready(drain: false)
      @ready = true
      @state = :serving if booting?
      self.drain if drain || @draining
    end

    # It has served, whoever has told it to stop. One that has not booted is a failure. Its hooks get a time of their own.
    def ending
      @ended = true
      @state = :stopping if serving?
      @stopping_since = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    # @return [Array<String>] see ControlChannel
    def messages
      @channel.read || [].tap do
        @channel.close
        @reconsidered_at = Process.clock_gettime(Process::CLOCK_MONOTONIC) + TIME_TO_EXIT
      end
    end

    # False once it has exited, or is about to.
    def connected? = !@channel.closed?

    # Answers LIMIT_REACHED.
    def answer(may_exit)
      if may_exit
        @channel.write(ControlChannel::GO)
        # It may have stopped waiting for the answer.
        stop(@past_limit || :request_limit)
      else
        recycle(:request_limit)
        @channel.write(ControlChannel::STAY)
      end
    end

    # Lets it finish its request and exit.
    #
    # @param cause [Symbol, nil] why it is replaced: see Scoreboard#count_restart; nil if it is not
    def stop(cause = nil)
      return let_go if mold?

      @cause ||= cause || :none
      @state = :stopping
      @told_at = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      @stopping_since ||= @told_at
      signal(@stop_signal)
    end

    # Tells it again to stop if it has no request, and has not said that it ends. A signal is lost where Ruby has no room on
    # the stack for its handler, or where the app ignores it for a while.
    #
    # @param now [Float] monotonic seconds
    # @return [Float, nil] when to do that next
    def stop_again(now)
      return if @told_at.nil? || @ended

      at = @told_at + STOP_INTERVAL
      return at if now < at

      signal(@stop_signal) unless busy?
      @told_at = now
      now + STOP_INTERVAL
    end

    # Asks it whether a debugger handles INT there.
    def ask_for_interrupt
      @interrupt_taken = nil
      signal(Worker::INTERRUPT_SIGNAL)
    end

    # @return [Boolean, nil] its answer; nil: there is none yet
    attr_accessor :interrupt_taken

    # Has it log where its threads are, for a developer.
    def log_backtraces = signal(Worker::BACKTRACE_SIGNAL)

    # Has it log where its threads are, because it is late.
    def dump_threads = signal(Engine::THREAD_DUMP_SIGNAL)

    # From now on it closes connections after each response. Before it stops it serves all that have arrived.
    def drain
      @draining = true
      signal(Worker::DRAIN_SIGNAL)
    end

    # @param why [String] for the log
    def kill(why)
      @killed ||= why
      @cause ||= booting? ? :boot : :worker_timeout
      @state = :stopping
      signal(:KILL)
    end

    def reopen_logs = signal(Worker::LOG_SIGNAL)

    # @param now [Float] monotonic seconds
    # @return [String, nil] the request that it is serving, or was serving when it died, for the log
    def request(now)
      entry = current or return
      seconds = format("%.1f", [now - entry[:started], 0].max)
      "#{"callbacks of " if entry[:callbacks]}#{entry[:line] || "a request"} for #{seconds} s#{", request id #{entry[:id]}" if entry[:id]}"
    end

    # @return [Float, nil] monotonic seconds at which its request has to be done; nil if there is none, or no limit
    def deadline = current&.fetch(:deadline)

    # @param now [Float] monotonic seconds
    # @return [Float, nil] since when, as far as calls of this tell, its process has been stopped (SIGSTOP, a debugger)
    def suspended_since(now)
      found = File.binread("/proc/#{@pid}/status").scan(SUSPENSION)
      # One that is traced stops all the time, and goes on.
      since = @suspension == found ? @suspended_since : now
      @suspension = found
      @suspended_since = found.first&.start_with?("State:") ? since : nil
    rescue SystemCallError
      # It has been reaped, or there is no such file here.
      nil
    end

    # @param now [Float] monotonic seconds
    # @return [WorkerExit, nil] nil while it runs
    def reap(now)
      # Only this pid: children that the app has started are the app's to wait for.
      pid, status = Process.wait2(@pid, Process::WNOHANG)
      exited(status, now) if pid
    rescue Errno::ECHILD
      # Some part of the app waits for all children, and was faster.
      exited(nil, now)
    end

    # @return [Integer, nil] its place in the scoreboard
    def slot = @entry&.last

    # Lets Ruby reap it, because the master no longer will.
    def detach
      @channel.close
      release_entry
      Process.detach(@pid)
    end

    private

    def exited(status, now)
      # Its last message may be unread.
      @state, @ready = :serving, true if booting? && connected? && messages.include?(ControlChannel::READY)
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

    # The mold ends at the end of its channel.
    def let_go
      @state = :stopping
      @stopping_since = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      @channel.close
    end

    def hijacked = scoreboard(:counts)&.fetch(:hijacked)

    # @return [Hash, nil] its entry while it has a request, or callbacks of one
    def current = scoreboard(:read)&.then { |entry| entry unless entry[:state] == :waiting }

    def release_entry
      scoreboard(:release)
      @entry = nil
    end

    # @return what a method of the scoreboard says of this worker's entry; nil without one
    def scoreboard(name, *arguments)
      board, slot = @entry
      board&.public_send(name, slot, *arguments)
    end

    # The pid stays taken until the worker is reaped.
    def signal(name)
      Process.kill(name, @pid)
    rescue Errno::ESRCH
      # Some part of the app has reaped it, as #reap will find out.
      nil
    end
  end
end
