# frozen_string_literal: true

require_relative "clock"
require_relative "control_channel"
require_relative "fork_guard"
require_relative "lifeline"
require_relative "log"
require_relative "pace"
require_relative "shutdown"
require_relative "signal_queue"
require_relative "spawner"
require_relative "worker_pool"

module Fastrack
  # The parent of the workers. It keeps as many of them as it was told to, recycles them, and ends them; it never touches
  # a request. Everything happens in one loop, which sleeps until a signal, a worker's word or a time that was set.
  class Master
    SIGNALS = %w[TERM QUIT INT HUP USR1 CHLD].freeze

    STOP_SIGNALS = %w[TERM QUIT INT USR1].freeze

    # What a supervisor may send once more while the program's at_exit hooks run.
    REPEATED = %w[TERM QUIT HUP USR1].freeze

    # In the queue for a stop that is the program's own wish.
    STOP = "stop"

    # @param launcher [Launcher]
    # @param app [#call] the Rack app
    def initialize(launcher, app)
      @launcher = launcher
      @configuration = launcher.configuration
      @signals = SignalQueue.new(SIGNALS)
      @lifeline = Lifeline.new
      @pool = WorkerPool.new(@configuration.max_workers)
      @pace = Pace.new(@configuration.spawn_interval, @configuration.err_respawn_interval)
      @spawner = Spawner.new(launcher, app, @signals, @lifeline)
      @generation = 1
    end

    # Runs until the server is told to stop and all workers are gone.
    #
    # @yield once signals are taken and before the first worker is spawned
    def run
      @signals.install
      ForkGuard.install { release }
      Process.setproctitle("fastrack master")
      yield if block_given?
      supervise
    ensure
      # Nothing is left to let go of, unless something was raised: then the workers notice that the lifeline is cut.
      @lifeline.close
      @pool.abandon
      ForkGuard.uninstall
      @signals.uninstall(quiet: @signalled ? REPEATED : [])
      @signals.close
      Process.setproctitle($PROGRAM_NAME)
    end

    # Has #run end as TERM does. Safe in a signal handler and from any thread, before #run too.
    def stop
      @signals.push(STOP)
    end

    private

    # In a process that a hook of the app's, or a thread, has forked off the master.
    def release
      @signals.disown
      [@signals, @lifeline, *@launcher.listeners, *@spawner.channels, *@pool.channels].each(&:close)
    end

    def supervise
      loop do
        act_on_signals
        reap
        break if @shutdown && @pool.empty?

        @shutdown ? @shutdown.step(Clock.now) : maintain
        listen_to_workers(wait)
      end
    end

    def act_on_signals
      @signals.drain
      while (name = @signals.shift)
        case name
        when "TERM", "QUIT", STOP then shut_down(Shutdown::Graceful)
        when "INT" then shut_down(@interrupted ? Shutdown::Quick : Shutdown::Graceful)
        when "HUP" then @generation += 1
        when "USR1" then shut_down(Shutdown::Phased) if @configuration.spawn_interval.positive?
        end
        @signalled ||= @shutdown && STOP_SIGNALS.include?(name)
        # Someone at a terminal who asks a second time does not want to wait; a supervisor that repeats a TERM does.
        @interrupted ||= name == "INT"
      end
    end

    # Changes over to a faster way of stopping, never to a slower one.
    def shut_down(kind)
      return if @shutdown && @shutdown.class::RANK >= kind::RANK

      # A client that comes from now on had better be refused than wait in vain. The workers have copies of their own.
      @launcher.listeners.each(&:close) unless kind == Shutdown::Phased
      @shutdown = kind.new(@pool, @configuration, Clock.now)
    end

    def reap
      @pool.reap do |handle, ending|
        next unless ending.failed?

        Log.line("worker #{handle.nr} (pid #{handle.pid}) #{ending}")
        ending.killed? ? @pace.killed(handle.spawned_at) : @pace.failed(Clock.now)
      end
    end

    # One spawn at most in a turn of the loop, so that a signal need not wait for all of them.
    def maintain
      recycle
      now = Clock.now
      slot = @pool.free_slot
      return if slot.nil? || now < @pace.not_before

      handle = @spawner.spawn(slot, @generation, @pool.channels)
      if handle
        @pool.add(handle)
        @pace.spawned(now)
      else
        @pace.failed(Clock.now)
      end
    end

    # Has one worker make room for a successor, which is spawned without waiting for its end.
    def recycle
      @pool.due_for_recycling(@generation)&.stop if @pool.spare?
    end

    def wait
      ready, = IO.select([@signals.reader, *@pool.channels], nil, nil, seconds_until_due)
      ready || []
    end

    # @return [Float, nil] seconds until there is something to do; nil when nothing is planned
    def seconds_until_due
      due = if @shutdown
              @shutdown.due_at
            elsif @pool.free_slot
              @pace.not_before
            end
      due && [due - Clock.now, 0].max
    end

    def listen_to_workers(ready)
      @pool.each do |handle|
        handle.words.each { |word| hear(handle, word) } if ready.include?(handle.channel)
      end
    end

    def hear(handle, word)
      case word
      when ControlChannel::READY then handle.ready
      when ControlChannel::LIMIT_REACHED then handle.answer(@shutdown || handle.stopping? || @pool.spare?)
      end
    end
  end
end
