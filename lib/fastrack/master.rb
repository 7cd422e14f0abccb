# frozen_string_literal: true

require_relative "announcer"
require_relative "clock"
require_relative "worker/control_channel"
require_relative "error"
require_relative "process/fork_guard"
require_relative "hook"
require_relative "lifeline"
require_relative "log"
require_relative "log_files"
require_relative "master/worker_timeout"
require_relative "pace"
require_relative "process/settings"
require_relative "master/shutdown"
require_relative "master/signal_queue"
require_relative "spawner"
require_relative "upgrade"
require_relative "terminal"
require_relative "master/workers"

module Fastrack
  # The parent of the workers. It keeps as many of them as it was told to, recycles them, and ends them; it never touches
  # a request. Everything happens in one loop, which sleeps until a signal, a worker's word or a time that was set.
  class Master
    SIGNALS = %w[TERM QUIT INT HUP USR1 USR2 TTIN TTOU WINCH CHLD].freeze

    STOP_SIGNALS = %w[TERM QUIT INT USR1].freeze

    # What a supervisor may send once more while the program's at_exit hooks run.
    REPEATED = %w[TERM QUIT HUP USR1 USR2 TTIN TTOU WINCH].freeze

    # In the queue for a stop that is the program's own wish.
    STOP = "stop"

    # @param launcher [Launcher]
    # @param app [#call] the Rack app
    # @param predecessor [Predecessor, nil] the master whose place this one takes
    def initialize(launcher, app, predecessor = nil)
      @launcher = launcher
      @signals = SignalQueue.new(SIGNALS)
      @lifeline = Lifeline.new
      @pool = WorkerPool.new(configuration.max_workers)
      @pace = Pace.new(configuration)
      @overseer = Overseer.new(@pool)
      @spawner = Spawner.new(launcher, app, @signals, @lifeline)
      @succession = Succession.new(launcher, predecessor)
      @takes_over = !predecessor.nil?
      @announcer = Announcer.new
      @generation = 1
      @announced = 0
    end

    # Runs until the server is told to stop and all workers are gone.
    #
    # @yield at first, when signals are heard already: they are acted on afterwards
    def run
      @signals.install
      yield
      ForkGuard.install { release }
      Process.setproctitle("fastrack master")
      @announcer.listening(@launcher.listeners)
      ProcessSettings.shortage&.then { |shortage| Log.line(shortage) }
      supervise
    ensure
      # Nothing is left to let go of, unless something was raised: then the workers notice that the lifeline is cut.
      @lifeline.close
      @pool.abandon
      @succession.close
      ForkGuard.uninstall
      @signals.uninstall(quiet: @signalled ? REPEATED : [])
      @signals.close
      Process.setproctitle($PROGRAM_NAME)
    end

    # Has #run end as TERM does. Safe in a signal handler and from any thread, before #run too.
    def stop
      @signals.push(STOP)
    end

    # @return [Integer] how many workers there are to be
    def worker_processes
      @pool.size
    end

    private

    def configuration
      @launcher.configuration
    end

    # In a process that a hook of the app's, or a thread, has forked off the master.
    def release
      let_go
      [*@launcher.listeners, @launcher.queue, *@succession.channels].compact.each(&:close)
    end

    # In the one that becomes the new master. It has the old one's handlers at first, and what comes then must not be lost:
    # the server may be told to stop right after USR2.
    #
    # @param pending [Integer] signals in the queue before the fork
    def make_way(pending)
      # Nothing that comes from now on waits for Ruby, which another program is about to replace.
      @signals.disown("SYSTEM_DEFAULT")
      (@signals.arrived_since_fork(pending) & %w[TERM INT]).each { |name| Process.kill(name, Process.pid) }
      close_all
    end

    def let_go
      @signals.disown
      close_all
    end

    def close_all
      [@signals, @lifeline, *@spawner.channels, *@pool.channels].each(&:close)
    end

    def supervise
      loop do
        act_on_signals
        reap
        keep_up(Clock.now)
        break if @shutdown && @pool.empty?

        listen(wait)
      end
    end

    # What there is to be done apart from signals and words.
    def keep_up(now)
      shut_down(Shutdown::Graceful) if @drained_at && now >= @drained_at
      @announcer.alive(now)
      @succession.step(now)
      @overseer.step(now, configuration.request_timeout)
      @shutdown ? @shutdown.step(now) : maintain
    end

    def act_on_signals
      @signals.drain
      while (name = @signals.shift)
        act_on(name)
        @signalled ||= stopping? && STOP_SIGNALS.include?(name)
      end
    end

    def act_on(name)
      case name
      when "TERM", STOP then terminate
      when "QUIT" then shut_down(Shutdown::Graceful)
      when "INT" then interrupt
      when "USR1" then configuration.spawn_interval.positive? ? shut_down(Shutdown::Phased) : reopen_logs
      when "CHLD" then nil
      else stopping? ? Log.line("#{name} is ignored: the server is stopping") : change(name)
      end
    end

    def stopping?
      !(@shutdown || @drained_at).nil?
    end

    def change(name)
      case name
      when "HUP" then reload
      when "USR2" then renew
      when "TTIN" then resize(@pool.size + 1, name)
      when "TTOU" then resize([@pool.size - 1, 0].max, name)
      when "WINCH" then Terminal.foreground? ? Log.line("WINCH is ignored: a terminal sends it, too") : resize(0, name)
      end
    end

    def resize(workers, name)
      @pool.size = workers
      Log.line("#{name}: there are to be #{workers} workers")
    end

    # The whole server is to stop, with a new master that is still booting.
    def terminate
      @succession.cancel("TERM")
      return shut_down(Shutdown::Graceful) if @shutdown
      return if @drained_at

      announce_stop
      @pool.each(&:drain)
      @drained_at = Clock.now + configuration.drain_delay
    end

    def interrupt
      @succession.cancel("INT")
      shut_down(Shutdown::Quick)
    end

    def reload
      @announcer.reloading
      change_listeners(@launcher.reload)
      @pool.size = configuration.max_workers
      @pace.adopt(configuration)
      @generation += 1
    rescue Error, SystemExit => e
      Log.line("HUP changes nothing: #{e.is_a?(Error) ? e.message : "the ConfigFile calls exit"}")
      @announcer.unchanged(@pool.size)
    end

    # Those who wait for a listener that is gone are for the workers that still have it.
    def change_listeners(change)
      return if change.nil?

      @announcer.listening(change.opened)
      @pool.each(&:drain) if change.gone.any?
    end

    def renew
      pending = @signals.size
      @announcer.reloading if @succession.start { make_way(pending) }
    end

    def reopen_logs
      LogFiles.reopen
      @pool.each(&:reopen_logs)
    end

    # Not where a new master serves on: a supervisor would take the whole service for one that ends, and see to it.
    def announce_stop
      @announcer.stopping unless @succession.followed?
    end

    # Changes over to a faster way of stopping, never to a slower one.
    def shut_down(kind)
      return if @shutdown && @shutdown.class::RANK >= kind::RANK

      announce_stop unless stopping?
      @launcher.queue&.end
      @drained_at = nil
      # A client that comes from now on had better be refused than wait in vain. The workers have copies of their own.
      @launcher.listeners.each(&:close) unless kind == Shutdown::Phased
      @shutdown = kind.new(@pool, configuration, Clock.now)
    end

    def reap
      heed(@succession.reap)
      @pool.reap do |handle, ending|
        tell_of_exit(handle, ending)
        @launcher.queue&.forget(handle.pid)
        Log.line("worker #{handle.nr} (pid #{handle.pid}) #{ending}") if ending.notable?
        next unless ending.failed?

        ending.sudden? ? @pace.killed(handle.spawned_at) : @pace.failed(Clock.now)
      end
    end

    def tell_of_exit(handle, ending)
      Hook.call(@launcher.configuration.after_worker_exit, @launcher, handle, ending.status)
    rescue StandardError, ScriptError => e
      Log.exception("after_worker_exit failed", e)
    end

    # One spawn at most in a turn of the loop, so that a signal need not wait for all of them.
    def maintain
      announce_readiness
      @pool.surplus.each(&:stop)
      recycle
      now = Clock.now
      slot = @pool.free_slot
      return if slot.nil? || now < @pace.not_before

      handle = @spawner.spawn(slot, @generation, [*@pool.channels, *@succession.channels])
      if handle
        @pool.add(handle)
        @overseer.spawned
        @pace.spawned(now)
      else
        @pace.failed(Clock.now)
      end
    end

    # Has one worker make room for a successor, which is spawned without waiting for its end.
    def recycle
      @pool.due_for_recycling(@generation)&.stop if @pool.spare?
    end

    # Once for each generation: when all slots have changed over to it.
    def announce_readiness
      return if @announced == @generation || !@pool.complete?(@generation)

      @announced = @generation
      @announcer.ready(@pool.size, takes_over: @takes_over)
      @takes_over = false
      @succession.ready(quit: configuration.auto_quit)
    end

    def wait
      ready, = IO.select([@signals.reader, *@pool.channels, *@succession.channels], nil, nil, seconds_until_due)
      ready || []
    end

    # @return [Float, nil] seconds until there is something to do; nil when nothing is planned
    def seconds_until_due
      due = [@succession.due_at, @announcer.due_at, @overseer.due_at, @drained_at, next_step_at].compact.min
      due && [due - Clock.now, 0].max
    end

    def next_step_at
      return @shutdown.due_at if @shutdown

      @pace.not_before if @pool.free_slot
    end

    def listen(ready)
      @pool.each do |handle|
        handle.words.each { |word| hear(handle, word) } if ready.include?(handle.channel)
      end
      @succession.listen(ready).each { |news| heed(news) }
    end

    def hear(handle, word)
      case word
      when ControlChannel::READY
        handle.ready
        handle.drain if @drained_at || handle.draining?
      when ControlChannel::LIMIT_REACHED then handle.answer(@shutdown || handle.stopping? || @pool.spare?)
      end
    end

    # What the other masters' news mean for this one.
    def heed(news)
      case news
      when :quit, :stop then shut_down(Shutdown::Graceful)
      when :alone
        # Whoever has sent the workers away (TTOU, WINCH) counted on the new master.
        @pool.size = configuration.max_workers unless @shutdown
        @announcer.unchanged(@pool.size) unless @shutdown
      end
    end
  end
end
