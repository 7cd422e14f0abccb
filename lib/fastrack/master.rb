# frozen_string_literal: true

require_relative "error"
require_relative "log"
require_relative "master/generations"
require_relative "master/hooks"
require_relative "master/monitor_thread"
require_relative "master/process_setup"
require_relative "master/refork"
require_relative "master/reload"
require_relative "master/shutdown"
require_relative "master/worker_timeout"
require_relative "master/workers"
require_relative "process/last_words"
require_relative "process/orphans"
require_relative "process/sd_notify"
require_relative "process/signal_queue"
require_relative "repeats"
require_relative "upgrade"
require_relative "worker/control_channel"

module Fastrack
  # The parent of the workers. The master spawns, recycles and stops workers, and never touches a request. The master is one loop that
  # sleeps until a signal, a message or a timer.
  class Master
    SIGNALS = [*%w[TERM QUIT INT HUP USR1 USR2 URG TTIN TTOU WINCH CHLD], Worker::BACKTRACE_SIGNAL].freeze
    STOP_SIGNALS = %w[TERM QUIT INT USR1].freeze

    # Signals that a supervisor may send again while the program's at_exit hooks run.
    REPEATED = (SIGNALS - %w[INT CHLD]).freeze

    # Entries of the signal queue for #stop and #restart.
    STOP = "stop"
    RESTART = "restart"

    # @param launcher [Launcher]
    # @param app [#call, AppFile]
    # @param old_master [OldMaster, nil] the master that this one replaces
    def initialize(launcher, app, old_master = nil)
      @launcher = launcher
      @signals = SignalQueue.new(SIGNALS)
      # Only the master has the writing end. When the master dies in any way, workers read the end of file.
      @death_pipe = launcher.first_reading&.death_pipe || IO.pipe
      Log.repeats = Repeats.new
      ForkGuard.shared = [launcher.first_reading ? LastWords : LastWords.open, Log.repeats]
      @hooks = MasterHooks.new(launcher, @signals)
      @orders = Orders.new { publish }
      manage_workers(app)
      @upgrade = old_master && Upgrade.new(launcher, @orders, old_master)
      @main_pid_changed = !old_master.nil?
      @sd_notify = SdNotify.new if ENV["NOTIFY_SOCKET"]
      @developer_interrupt = DeveloperInterrupt.new(@workers, method(:end_quickly))
      @periodic = [@sd_notify, @developer_interrupt, @leftovers, @workers.profile, Orphans.start, launcher.configuration.puma&.restarter(launcher) { @upgrade&.busy? }].compact
      @generation, @announced, @interrupts, @restart = 1, 0, 0, false
    end

    # Returns when the server was told to stop and all workers have exited.
    #
    # @yield when the app is loaded and the signal handlers are set; signals are handled afterwards
    # @return [Boolean] whether the server is to start again
    # @raise [StartFailed]
    def run
      # systemd's watchdog is also pinged while a hook keeps the master from its loop.
      @hooks.limit.meanwhile = @sd_notify&.method(:step)
      ForkGuard.install(method(:forked_by_app)) { descriptors }
      # Signals end the process while the app is loaded. The server already listens, so clients wait for the app and are not refused.
      @generations.start
      @signals.install
      @on_terminal = ProcessSetup.foreground? && !@launcher.supervised? && !@signals.ignored_before?("HUP")
      @signals.ends = method(:ends?)
      yield
      @launcher.proxy&.start
      memory_supervisor.start(configuration) if configuration.auto_workers?
      start_monitor
      supervise
      @launcher.restarting if @restart
      handle_signals
      Log.line(format("stopped, %.1f s after %s", now - @stop_at, @stop_reason))
      @restart
    ensure
      close
    end

    # @return [MasterHooks]
    attr_reader :hooks

    # Starts the app's plugins. Where an old master's have what only one can have, such as a port, they start when it has ended.
    #
    # @raise [StartFailed]
    def start_plugins = (@generations.start_plugins unless @upgrade&.old?)

    # Makes #run return, like TERM. Safe in a signal handler, on any thread, and before #run.
    def stop = @signals.push(STOP)

    # Makes #run return true, like #stop, unless the server is told to stop meanwhile.
    def restart = @signals.push(RESTART)

    # @return [Integer] wanted number of workers
    def worker_processes = @workers.size

    private

    def manage_workers(app)
      @workers = Workers.new(@launcher, @hooks, @signals)
      @reload = Reload.new(@launcher, @workers) { move_monitor }
      @generations = Generations.new(@launcher, app, @workers, @death_pipe, @orders, @reload) { notify_ready }
      @worker_timeout, @leftovers = WorkerTimeout.new(@workers), Leftovers.new(@workers)
      @refork = Refork.new(@launcher, @workers, @orders) { @generations.spare_first }
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    def configuration = @launcher.configuration

    # Called in a process that the app has forked.
    def forked_by_app
      @signals.reset
      @launcher.disown_pid_file
    end

    # Objects with descriptors that a forked process must not keep.
    def descriptors
      [@signals, *@death_pipe, *@workers.descriptors, *@generations.readers, *@upgrade&.channels, *@launcher.open_listeners, @launcher.queue, @workers.scoreboard, @launcher.pid_file, @launcher.waiting,
       @monitor, *@launcher.proxy&.descriptors].compact
    end

    # Tells the monitor the current state. The monitor answers clients also while this process is busy.
    def publish = @monitor&.publish(@generation, @announced.positive?, @shutdown, @orders, @upgrade&.other_master, @launcher.proxy, @refork.saving)

    def start_monitor
      asked = configuration.control || configuration.default_control_socket?
      # Until this server is ready, the monitor of the old master answers.
      @monitor = (MonitorThread.start(@launcher, @workers, replaces: @main_pid_changed) if asked)
    end

    def move_monitor
      @monitor&.close
      start_monitor
    end

    # After an exception workers may still run. Workers exit because the death pipe is closed.
    def close
      @death_pipe.each(&:close)
      ForkGuard.shared.each(&:close)
      @workers.detach
      @upgrade&.close
      @monitor&.close
      @launcher.proxy&.close
      Log.repeats = nil
      ForkGuard.shared = []
      ForkGuard.uninstall
      @signals.uninstall(quiet: @signalled ? REPEATED : [], once: @signalled && @interrupts.zero? && !configuration.development? ? ["INT"] : [])
      @signals.close
    end

    def supervise
      loop do
        handle_signals
        handle_upgrade(@upgrade&.reap)
        reap
        step(now)
        publish
        break if shutting_down? && @workers.empty? && !@launcher.proxy&.ending?

        read_messages(wait)
      end
    end

    def reap
      @workers.reap do |handle, exited|
        handle.first? ? @leftovers.exited(handle, now) : @monitor&.exited(handle, exited)
        [@refork, @generations].each { |one| one.exited(handle, exited) } unless shutting_down?
      end
      @generations.finish(@restart) if shutting_down? && @workers.all_but_first.empty?
    end

    def step(now)
      shut_down(Shutdown::Graceful, @stop_reason, again: @restart) if draining? && now >= @shutdown.due_at
      [@upgrade, @launcher.proxy, *@periodic].each { |one| one&.step(now) }
      shutting_down? ? @shutdown.step(now) : maintain(now)
      @worker_timeout.step(now, configuration)
    end

    # @return [Array<IO, ControlChannel>] the readable ones
    def wait
      ControlChannel.select([@signals.reader, *@workers.channels, *@upgrade&.channels, *@launcher.proxy&.readers, *(@generations.readers unless shutting_down?)], seconds_until_due)
    end

    # @return [Float, nil] nil when nothing is due
    def seconds_until_due
      spawn_at = @workers.not_before if !shutting_down? && @workers.source && @workers.next_slot(@generation)
      due = [@upgrade, @launcher.proxy, @worker_timeout, @shutdown, *@periodic, *([@memory_supervisor, @refork, @generations] unless shutting_down?)].filter_map { |one| one&.due_at }
      due = [*due, spawn_at].compact.min
      due && [due - now, 0].max
    end

    def draining? = @shutdown.is_a?(Shutdown::Drain)

    # False while draining, because workers are still replaced then.
    def shutting_down? = !@shutdown.nil? && !draining?

    def handle_signals
      @signals.clear_wakeups
      while (name = @signals.shift)
        handle_signal(name)
        @workers.end_hooks if shutting_down? && STOP_SIGNALS.include?(name)
        @signalled ||= @shutdown && [*STOP_SIGNALS, "HUP"].include?(name)
      end
    end

    def handle_signal(name)
      return terminal_gone if name == "HUP" && terminal_closed?

      case name
      when "TERM", STOP then finish(name)
      when "QUIT" then @launcher.interactive? ? @workers.each(&:log_backtraces) : shut_down(Shutdown::Graceful, name)
      when "INT" then interrupt
      when "USR1" then configuration.spawn_interval.positive? ? shut_down(Shutdown::Phased, name) : reopen_logs
      when Worker::BACKTRACE_SIGNAL then @workers.each(&:log_backtraces)
      when "CHLD" then nil
      else @shutdown ? ignore(name) : change(name)
      end
    end

    def ignore(name)
      Log.line("#{name} is ignored: the server is stopping")
      return unless Orders::SIGNALS.include?(name)

      @orders.begin(name)
      @orders.refused(name, "the server is stopping")
    end

    # A new master that is still booting also gets TERM, because the signal is for the whole server.
    def finish(name)
      shut_down(@shutdown.is_a?(Shutdown::Phased) ? Shutdown::Graceful : Shutdown::Drain, name, cancel: "TERM")
    end

    # In development nobody waits for the requests, which may take for ever, so workers are killed.
    def terminal_gone
      configuration.development? ? shut_down(Shutdown::Quick, "HUP", cancel: "TERM") : finish("TERM")
    end

    # Graceful at first, since some supervisors stop servers by INT. A user who sends INT again cannot wait. A developer never waits.
    def interrupt
      return @developer_interrupt.begin(now) if configuration.development? && @launcher.interactive? && @workers.each.any?(&:busy?)
      return end_quickly if @interrupts.positive? || configuration.development?

      @interrupts += 1
      finish("INT")
    end

    def end_quickly
      @signalled = true
      shut_down(Shutdown::Quick, "INT", cancel: "INT")
    end

    # USR1 has another meaning in Puma, so the line says more with a puma.rb.
    def reopen_logs
      [@workers, *@launcher.proxy].each(&:reopen_logs)
      Log.line("USR1: log files are reopened#{"; for Puma's phased restart send HUP" if configuration.puma}")
    end

    def change(name)
      case name
      when "HUP" then reload
      when RESTART then shut_down(Shutdown::Drain, name, cancel: "TERM", again: true)
      when "USR2" then upgrade
      when "URG" then refork
      when "TTIN" then resize(@workers.size + 1, name)
      when "TTOU" then resize([@workers.size - 1, 0].max, name)
      when "WINCH" then ProcessSetup.foreground? ? Log.line("WINCH is ignored: terminals send it, too") : resize(0, name)
      end
    end

    # Begins a shutdown, or changes to a faster one, never to a slower one.
    #
    # @param reason [String] the signal or order, for the log
    # @param cancel [String, nil] a signal that a new master, if it is still booting, also gets
    # @param again [Boolean] whether the server is to start again; the last order counts
    def shut_down(kind, reason, cancel: nil, again: false)
      @restart = again
      @upgrade&.cancel(cancel) if cancel
      kind = @launcher.proxy.before_shutdown(kind, @shutdown, replaced: @upgrade&.replaced? || false) if @launcher.proxy
      return unless @shutdown.nil? || @shutdown.slower_than?(kind)

      notify_stopping unless @shutdown
      @hooks.limit.ending
      @stop_reason = reason
      @stop_at ||= now
      @shutdown = kind.new(@workers, @launcher, now)
      @shutdown.text&.then { |text| Log.line("#{reason}: #{text}") }
    end

    # Says nothing if a new master serves on: systemd would take the whole service for stopping.
    def notify_stopping
      @sd_notify&.stopping unless @upgrade&.replaced?
    end

    def reload
      @orders.begin("HUP")
      @sd_notify&.reloading
      @generations.renew
    end

    # Whether an order ends the server, so that nobody needs a new configuration or worker. HUP may mean that the terminal is closed.
    def ends?(name)
      [STOP, RESTART, "TERM", "INT"].include?(name) || (name == "QUIT" && !@launcher.interactive?) || (name == "HUP" && terminal_closed?)
    end

    def terminal_closed? = @on_terminal && ProcessSetup.terminal_closed?

    def upgrade
      pending = @signals.size
      @upgrade ||= Upgrade.new(@launcher, @orders)
      @sd_notify&.reloading if @upgrade.start(now) { @signals.leave_to_program(pending) }
    end

    # Replaces all workers as #upgrade does, with the same code.
    #
    # @param auto [Boolean] whether the server decided by itself
    def refork(auto: false)
      obstacle = if @upgrade&.replaced? then "a new master is there, or starts"
                 elsif @generations.renewing? || @workers.staying.any? { |handle| handle.generation < @generation } then "the workers are being replaced"
                 end
      @refork.begin(obstacle, auto: auto)
    end

    def resize(workers, name)
      most = Option::Types::MOST_WORKERS
      return Log.line("#{name}: there are #{most} workers, the most that MaxWorkers may be") if workers > most

      @workers.size = workers
      Log.line("#{name}: changing to #{Log.count(workers, "worker")}")
    end

    # Loaded once all workers serve, when nobody waits for the master.
    def memory_supervisor
      require_relative "memory/supervisor"
      @memory_supervisor ||= MemorySupervisor.new(@workers, @launcher.proxy)
    end

    # Spawns one worker at most, so that signals are handled between two spawns.
    def maintain(now)
      refork(auto: true) if @shutdown.nil? && @refork.due?(now, configuration)
      before, @generation = @generation, @generations.step(@generation, now, plugins: !@upgrade&.old?)
      @refork.renewed(@generation <=> before, now)
      @generation += 1 if @refork.step(@generation, now, @generations.previous_molds)
      @workers.surplus.each(&:stop)
      @workers.recycle(@generation, @refork.begun? ? :refork : :reload)
      announce_ready
      @memory_supervisor.step(now, configuration) if @memory_supervisor&.due_at&.<=(now)
      @workers.fill_slot(@generation)
    end

    def announce_ready
      return if @announced == @generation || @generations.replacing? || !@workers.complete?(@generation)
      return if @launcher.proxy&.settled? == false
      # Without a worker a server that starts is not ready: its old master would end, and nobody would serve.
      return if @announced.zero? && @workers.size.zero?

      @announced = @generation
      @sd_notify&.main_pid(Process.pid) if @main_pid_changed
      @main_pid_changed = false
      notify_ready
      @launcher.ready
      @booted ||= @generations.booted || true
      @monitor&.listen
      @upgrade&.ready(quit: configuration.auto_quit)
      memory_supervisor.begin(configuration)
    end

    def notify_ready = @sd_notify&.ready(Log.count(@workers.size, "worker"))

    def read_messages(ready)
      @workers.read(ready, drain: draining?, may_exit: shutting_down?)
      @upgrade&.read(ready)&.each { |event| handle_upgrade(event) }
    end

    def handle_upgrade(event)
      case event
      when :quit, :stop then shut_down(Shutdown::Graceful, "order of the #{event == :quit ? "new" : "old"} master")
      when :alone
        return if shutting_down?

        # TTOU or WINCH may have stopped workers of this master, because the new master was to replace them.
        @reload.resize
        @monitor&.listen
        notify_ready
      when :heir then @monitor&.listen
      end
    end
  end
end
