# frozen_string_literal: true

require_relative "../log"

module Fastrack
  # Limits the time of code in the master that is not the server's own and may wait for ever: hooks, events, plugins, or a ConfigFile that
  # writes to a pipe without a reader.
  #
  # A thread watches the time. Ruby's Timeout is not used: a fork copies its queue, so that Timeout would raise in the child.
  class TimeLimit
    # Raised to end the block. A plain `rescue` in a ConfigFile does not catch this class.
    Unfinished = Class.new(Exception) # rubocop:disable Lint/InheritException

    # Raised when an order to end the server comes meanwhile.
    Interrupted = Class.new(Unfinished)

    # Seconds for a block while the server ends: ENDING_TIME, or MOMENT once a block has hung. A block that was ended gets ENDING_TIME
    # seconds to unwind. Then the exception is raised again.
    ENDING_TIME = 5
    MOMENT = 1

    # Number of tries to end a block that delays an order to end the server. After them the master exits.
    TRIES = 2

    # Seconds between two checks of the thread.
    CHECK_INTERVAL = 0.05

    # @return [#call, nil] called with the monotonic time (seconds) while a block with a limit runs
    attr_writer :meanwhile

    # Called when the server ends. Blocks that run later get little time.
    def ending
      @ending = true
    end

    # Runs the block until the time is over or an order to end the server comes. A nested call has the limits of the outer one. A process
    # that the block forks exits at the end of the block, because it must not go on as another master.
    #
    # @param seconds [Float] 0: no limit
    # @param order [#call] returns the name of an order to end the server, or nil
    # @param grace [Float] seconds that the block gets after such an order
    # @return the result of the block
    # @raise [Unfinished]
    def run(seconds, order, grace: 0, &block)
      return here(&block) if @running

      if grace.zero? && (name = order.call)
        raise Interrupted, "#{name} has come meanwhile"
      end

      seconds = least(seconds, (@hung ? MOMENT : ENDING_TIME if @ending))
      here { watched(Watch.new(Thread.current, seconds, order, grace, @meanwhile), &block) }
    rescue Unfinished
      @hung = true
      raise
    end

    private

    # The exception reaches the block only, and nothing after the block.
    def watched(watch)
      Thread.handle_interrupt(Unfinished => :never) do
        @running = true
        watch.start
        Thread.handle_interrupt(Unfinished => :immediate) { yield }
      ensure
        @running = false
        watch.over
      end
    end

    def here
      pid = Process.pid
      yield.tap { leave(nil) unless Process.pid == pid }
    rescue Exception => e # rubocop:disable Lint/RescueException -- a child is never to go on as its parent
      raise if Process.pid == pid

      leave(e)
    end

    # Ends a forked child.
    def leave(error)
      Process.exit!(error.status) if error.is_a?(SystemExit)
      Log.exception("a process that a hook has forked ends", error) if error
      Log.flush
      Process.exit!(error.nil?)
    end

    # @return [Float] the lowest limit; 0 and nil are no limits
    def least(*limits) = limits.compact.select(&:positive?).min || 0

    # Limits the time of one block, by a thread.
    class Watch
      def initialize(thread, seconds, order, grace, meanwhile)
        @thread = thread
        @order = order
        @grace = grace
        @reason = "it is not done within #{seconds.ceil} s"
        @due_at = (now + seconds if seconds.positive?)
        # Without WorkerBootTimeout, systemd's watchdog is the limit.
        @meanwhile = (meanwhile if @due_at)
        @error = Unfinished
        @tries = 0
        @lock = Mutex.new
      end

      def start
        @watcher = Thread.new { watch }
        @watcher.report_on_exception = false
      end

      # The block is over: nothing is raised after this call.
      def over
        # A forked child has no watcher, and must not wait for the parent's lock.
        @lock.synchronize { @thread = nil } if @watcher&.alive?
        @watcher&.kill
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def watch
        loop do
          sleep CHECK_INTERVAL
          time = now
          @meanwhile&.call(time)
          note_order(time)
          finish(time) if @due_at && time >= @due_at
        end
      end

      def note_order(time)
        return if @noted || (name = @order.call).nil?

        @noted = true
        return if @due_at && @due_at <= time + @grace

        @due_at = time + @grace
        @reason = "#{name} has come meanwhile"
        @error = Interrupted
      end

      # The block gets ENDING_TIME seconds to unwind before the exception is raised again.
      def finish(time)
        @due_at = time + ENDING_TIME
        end_master if @noted && @tries >= TRIES
        @tries += 1
        @lock.synchronize { @thread&.raise(@error, @reason) }
      end

      # The block rescues every exception, so the master exits. Workers notice the end of their master, and finish.
      def end_master
        Log.line("a hook cannot be ended: #{@reason}; process #{Process.pid} ends without it", :error)
        Process.exit!(1)
      end
    end
    private_constant :Watch
  end

  # Runs hooks, events and plugins in the master. The master does nothing else meanwhile. No exception and no delay of a hook ends the
  # master, or keeps the master from an order to end.
  class MasterHooks
    # @param launcher [Launcher]
    # @param signals [SignalQueue, Mold] tells an order to end this process
    def initialize(launcher, signals)
      @launcher = launcher
      @signals = signals
      @limit = TimeLimit.new
    end

    # @return [TimeLimit] limit of all hooks, events and plugins
    attr_reader :limit

    # Runs the block for so many seconds at most: see TimeLimit#run.
    #
    # @raise [TimeLimit::Unfinished], and all that the block raises
    def within(seconds, grace: 0, &block) = @limit.run(seconds, @signals.method(:ending_order), grace: grace, &block)

    # Runs the block for WorkerBootTimeout at most.
    #
    # @param grace [Float] see TimeLimit#run
    # @raise see #within
    def bounded(grace: 0, &block) = within(@launcher.configuration.worker_boot_timeout, grace: grace, &block)

    # @return [#call] the same limit for a fork: a library's wrapper of Process._fork may also wait for ever
    def fork_limit = ->(&fork) { bounded(grace: TimeLimit::MOMENT, &fork) }

    # Runs the block as #bounded does, and logs exceptions. After an order to end the server the block gets a moment to clean up.
    #
    # @param name [String, Symbol] for the log
    # @return [Boolean] whether the block has returned
    def call(name, &block)
      bounded(grace: TimeLimit::MOMENT, &block)
      true
    rescue Exception => e # rubocop:disable Lint/RescueException -- no hook ends the server, not by `exit` either
      Log.exception("#{name} failed", e)
      false
    end

    # Calls a hook of the configuration.
    #
    # @param word [Symbol]
    def call_hook(word, *arguments)
      configuration = @launcher.configuration
      call(word) { configuration.call_hook(word, @launcher, *arguments) } if configuration.public_send(word)
    end
  end
end
