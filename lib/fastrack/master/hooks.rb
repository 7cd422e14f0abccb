# frozen_string_literal: true

require_relative "../log"

module Fastrack
  # Limits what may wait for ever in the master, and is not the server's: hooks, events and plugins, or a ConfigFile that writes to
  # a pipe that nobody reads.
  #
  # A thread watches it. Not Ruby's Timeout: its queue is copied by a fork, and it would end something in the child.
  class TimeLimit
    # What ends the block. It is no error that a `rescue` in a ConfigFile would take for its own.
    Unfinished = Class.new(Exception) # rubocop:disable Lint/InheritException

    # An order to end the server has come meanwhile.
    Interrupted = Class.new(Unfinished)

    # Seconds for what may wait for ever while the server ends: as long as nothing has hung, and then. What has been ended gets as
    # long to unwind, before it is ended again.
    LAST = 5
    MOMENT = 1

    # So often a block is ended that keeps an order to end the server from its turn. Then the master ends, whatever that costs.
    TRIES = 2

    # Seconds between two looks of the thread.
    TICK = 0.05

    # @return [#call, nil] called with the monotonic time (seconds) while the block runs, unless it has no limit
    attr_writer :meanwhile

    # The server ends: what is limited from now on has little time.
    def ending
      @ending = true
    end

    # Runs the block until that time is over, or an order to end the server comes, or has come. In another block the limits of that
    # one count. A process that the block forks does not outlive the block: it is not to go on as another master.
    #
    # @param seconds [Float] 0: no limit
    # @param order [#call] gives the name of such an order, or nil
    # @param grace [Float] seconds that it may go on for after such an order
    # @return what the block returns
    # @raise [Unfinished]
    def run(seconds, order, grace: 0, &block)
      return here(&block) if @running

      if grace.zero? && (name = order.call)
        raise Interrupted, "#{name} has come meanwhile"
      end

      seconds = least(seconds, (@hung ? MOMENT : LAST if @ending))
      here { watched(Watch.new(Thread.current, seconds, order, grace, @meanwhile), &block) }
    rescue Unfinished
      @hung = true
      raise
    end

    private

    # Whatever ends it, it is the block that is ended, and nothing behind it.
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

    # In a child.
    def leave(error)
      Process.exit!(error.status) if error.is_a?(SystemExit)
      Log.exception("a process that was forked in the master ends", error) if error
      Log.flush
      Process.exit!(error.nil?)
    end

    # @return [Float] the least of them; 0 and nil are no limits
    def least(*limits) = limits.compact.select(&:positive?).min || 0

    # The thread that ends one block.
    class Watch
      def initialize(thread, seconds, order, grace, meanwhile)
        @thread = thread
        @order = order
        @grace = grace
        @reason = "it is not done within #{seconds.ceil} s"
        @due_at = (now + seconds if seconds.positive?)
        # Who wants no limit wants systemd's.
        @meanwhile = (meanwhile if @due_at)
        @error = Unfinished
        @tries = 0
        @lock = Mutex.new
      end

      def start
        @watcher = Thread.new { watch }
        @watcher.report_on_exception = false
      end

      # From now on nothing is raised any more.
      def over
        # The locks of a process are not those of its children, where there is no such thread either.
        @lock.synchronize { @thread = nil } if @watcher&.alive?
        @watcher&.kill
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def watch
        loop do
          sleep TICK
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

      # What unwinds by then is not to be disturbed, nor is it to go on for ever.
      def finish(time)
        @due_at = time + LAST
        give_up if @noted && @tries >= TRIES
        @tries += 1
        @lock.synchronize { @thread&.raise(@error, @reason) }
      end

      # It rescues whatever is raised. The workers notice the end of their master, and finish.
      def give_up
        Log.line("what the master runs cannot be ended: #{@reason}; the master ends without it", :error)
        Process.exit!(1)
      end
    end
    private_constant :Watch
  end

  # Runs hooks, events and plugins in the master, which does nothing else meanwhile. Whatever they raise, and however long they take,
  # the master goes on, and obeys an order to end.
  class MasterHooks
    # @param launcher [Launcher]
    # @param signals [SignalQueue] the master's
    def initialize(launcher, signals)
      @launcher = launcher
      @signals = signals
      @limit = TimeLimit.new
    end

    # @return [TimeLimit] of all that runs here
    attr_reader :limit

    # Runs the block for that many seconds at most: see TimeLimit#run.
    #
    # @raise [TimeLimit::Unfinished], and what the block raises
    def within(seconds, grace: 0, &block) = @limit.run(seconds, @signals.method(:ending_order), grace: grace, &block)

    # Runs the block for WorkerBootTimeout at most.
    #
    # @param grace [Float] see TimeLimit#run
    # @raise see #within
    def bounded(grace: 0, &block) = within(@launcher.configuration.worker_boot_timeout, grace: grace, &block)

    # @return [#call] the same, for a fork: what wraps Process._fork may also wait for ever
    def fork_limit = ->(&fork) { bounded(grace: TimeLimit::MOMENT, &fork) }

    # As #bounded, and logs what the block raises. After an order to end the server it gets a moment: it may have something to clean up.
    #
    # @param name [String, Symbol] for the log
    # @return [Boolean] whether it has returned
    def call(name, &block)
      bounded(grace: TimeLimit::MOMENT, &block)
      true
    rescue Exception => e # rubocop:disable Lint/RescueException -- no hook ends the server, not by `exit` either
      Log.exception("#{name} failed", e)
      false
    end

    # A hook of the configuration.
    #
    # @param word [Symbol]
    def call_hook(word, *arguments)
      configuration = @launcher.configuration
      call(word) { configuration.call_hook(word, @launcher, *arguments) } if configuration.public_send(word)
    end
  end
end
