# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "../master/hooks"
require_relative "../process/exit_status"
require_relative "../process/guards"
require_relative "../process/last_words"
require_relative "../process/signal_queue"
require_relative "control_channel"
require_relative "mold_children"

module Fastrack
  # A process that forks workers for the master, and serves nobody: generation 0 (FirstMold), or a worker that has served (PromotedMold).
  #
  # The mold ends with its channel to the master.
  class Mold
    # Signals that stop the server. The app's code in the mold, and the mold's children, may send them to the mold.
    STOP_SIGNALS = %w[TERM INT].freeze

    # @return [MasterHooks] runs hooks in this process
    attr_reader :hooks

    # @param launcher [Launcher]
    # @param app [#call, AppFile] the app without middleware of a puma.rb; each worker loads an AppFile
    # @param channel [ControlChannel] to the master
    # @param death_pipe [IO] at end of file when the master is dead
    def initialize(launcher, app, channel, death_pipe)
      @launcher = launcher
      @app = app
      @channel = channel
      @death_pipe = death_pipe
      @scoreboard, @master = Fastrack.scoreboard
      @children = []
    end

    # For hooks. A hook that hangs must not hold the port of the next worker when the master is dead.
    #
    # @return [String, nil] an order to end this process, or what ends it
    def ending_order = @signals.ending_order || ("the end of the master" if @death_pipe.wait_readable(0))

    # Objects with descriptors that a process which the app forks must not keep.
    def descriptors = [@signals, @death_pipe, @channel, *@order&.descriptors].compact

    # Sends a message to the master.
    #
    # @param words [Array<String>]
    def tell(*words) = @channel.write(words.join(" "))

    private

    OWN_SIGNALS = %w[USR1 USR2 URG PWR].freeze
    private_constant :OWN_SIGNALS

    def configuration = @launcher.configuration

    # @return [String] for ps(1)
    def role = "mold"

    # Queues signals. Children of this process become workers, and signals for a child stay queued until the child handles its own.
    def take_signals
      @signals = SignalQueue.new([*Worker::STOP_SIGNALS, *Worker::MASTER_SIGNALS, *OWN_SIGNALS, *("CHLD" unless @launcher.subreaper?)])
      @signals.ends = STOP_SIGNALS.method(:include?)
      @signals.install
      @hooks = MasterHooks.new(@launcher, self)
      @launcher.molded(self)
      ForkGuard.install(-> { forked_by_app }) { descriptors }
      MoldChildren.new(-> { name }, configuration.graceful_timeout) { @children }.end_at_exit
      Process.setproctitle(@launcher.title(role))
    end

    def forked_by_app
      @signals.reset
      @launcher.disown_pid_file
    end

    def obey
      loop do
        ready = ControlChannel.select([@signals.reader, @channel, @death_pipe], pause)
        handle_signals
        return if ready.include?(@death_pipe)
        next unless ready.include?(@channel)

        orders = @channel.take_orders or return
        orders.each { |order| return if handle(order) == :finish }
      end
    end

    # @return [Numeric, nil] longest time without an order until #handle_signals is called, in seconds; nil: no limit
    def pause = nil

    # An ended worker, as hooks get it.
    Exited = Struct.new(:nr, :pid, :generation)
    private_constant :Exited

    # @param order [ControlChannel::Order]
    # @return [Symbol] :finish ends the mold
    def handle(order)
      case order.kind
      when ControlChannel::FORK then fork_worker(order)
      when ControlChannel::EVENT then event(*order.words)
      end
    end

    # @param name [String] after_worker_exit
    # @param numbers [Array<String>] of the worker: its number, pid, generation, and status
    def event(name, *numbers)
      nr, pid, generation, status = numbers.map(&:to_i)
      hooks.call_hook(name.to_sym, Exited.new(nr, pid, generation), ExitStatus.new(pid, status))
    end

    def handle_signals
      @signals.clear_wakeups
      while (name = @signals.shift)
        case name
        when *STOP_SIGNALS then tell(ControlChannel::STOP, name)
        when Worker::LOG_SIGNAL then LogFiles.reopen
        when Worker::BACKTRACE_SIGNAL then Log.line("the mold (pid #{Process.pid}) waits for orders")
        when "CHLD" then reap
        end
      end
    end

    # Forks a worker, and answers with its pid. After any other answer the master tries again later, or by another mold.
    def fork_worker(order)
      @order = order
      _, _, nr, slot, *listeners = order.numbers
      raise Error, "#{role} may not open more files (RLIMIT_NOFILE)" unless order.whole?

      worker = Worker.new(nr, @launcher, @app, slot && [@scoreboard, slot])
      before_fork(worker)
      @channel.forked(order, fork_process { begin_worker(worker, listeners, *order.descriptors) })
      configuration.puma&.fire(:after_worker_fork, hooks, nr)
    rescue Exception => e # rubocop:disable Lint/RescueException -- no hook ends the mold, not by `exit` either
      Log.exception("cannot spawn worker #{nr}", e)
      LastWords.say(e)
      @channel.forked(order, 0)
    ensure
      order.descriptors.each(&:close)
      @order = nil
    end

    def before_fork(worker)
      hooks.bounded(grace: TimeLimit::MOMENT) { configuration.call_hook(:before_fork, @launcher, worker) } if configuration.before_fork
    end

    # @yield in the new worker
    # @return [Integer] the worker's pid
    def fork_process(&work)
      ForkGuard.own_fork do
        next fork_twice(&work) if @launcher.subreaper?

        ControlChannel.fork_child(hooks.fork_limit, &work).tap { |pid| @children << pid }
      end
    end

    # Forks a child of a child. When the child between them exits, the master becomes the parent, because it is a subreaper. So the master
    # knows the worker's end also after the end of this mold. macOS has no subreapers: there the mold tells the master (#reap).
    def fork_twice(&work)
      reader, writer = IO.pipe
      between = ControlChannel.fork_child(hooks.fork_limit) do
        limit = MasterHooks.new(@launcher, self).fork_limit
        writer.write(ForkGuard.own_fork { ControlChannel.fork_child(limit) { [reader, writer].each(&:close).then(&work) } })
        Process.exit!(0)
      end
      writer.close
      pid = reader.read.to_i
      # The master is the worker's parent once this child has ended.
      wait_for(between)
      pid
    ensure
      [reader, writer].compact.each(&:close)
    end

    def wait_for(pid)
      Process.wait(pid)
    rescue Errno::ECHILD
      # A thread of the app waits for all children, and was faster.
      nil
    end

    # Tells the master which workers have ended.
    def reap
      @children.reject! do |pid|
        found, status = Process.wait2(pid, Process::WNOHANG)
        tell(ControlChannel::REAPED, pid, status.to_i) if found
        found
      rescue Errno::ECHILD
        true
      end
    end

    # Makes the process a worker like any other, with a channel to the master.
    #
    # @param listeners [Array<Integer>] identities of the listeners
    # @param socket [Socket] to the master
    # @param descriptors [Array<IO>] of the listeners and of the shared queue
    def begin_worker(worker, listeners, socket, *descriptors)
      pending = @signals.size
      theirs = ControlChannel.new(socket)
      ForkGuard.close_descriptors(keep: [@death_pipe, socket, *descriptors])
      @launcher.take_over(listeners.zip(descriptors.shift(listeners.size)).to_h, descriptors, @master)
      theirs.await_known
      worker.live(theirs, @signals, pending, @death_pipe)
    end
  end
end
