# frozen_string_literal: true

require "etc"
require_relative "../configuration/control_endpoints"
require_relative "../configuration/start_lines"
require_relative "../error"
require_relative "../log"
require_relative "../process/safe_file"
require_relative "../text"
require_relative "../version"
require_relative "shutdown"

module Fastrack
  # Outcomes of the last orders to start processes: HUP, USR2 and URG. The monitor publishes them, and commands such as `fastrack restart`
  # wait for them.
  class Orders
    SIGNALS = %w[HUP USR2 URG].freeze

    # Orders that are kept for commands that wait.
    KEPT = 16

    # @attr number [Integer] number of the order, counted by this master
    # @attr signal [String]
    # @attr state [String] begun, done or failed
    # @attr reason [String, nil] why the order has failed
    # @attr pid [Integer, nil] of the new master
    Order = Struct.new(:number, :signal, :state, :reason, :pid)

    # @yield when an order has begun, before its work: a command that gives an order meanwhile must not take this order for its own
    def initialize(&begun)
      @begun = begun
      @orders = []
      @count = 0
    end

    # @return [Array<Array>] the last orders, as Monitor#publish takes them
    def to_a = @orders.map(&:to_a)

    # @param signal [String]
    def begin(signal)
      @orders.shift if @orders.size == KEPT
      @orders << Order.new(@count += 1, signal, "begun")
      @begun.call
    end

    # @param signal [String]
    # @param pid [Integer] pid of the new master that the last order of this kind has started
    def started(signal, pid)
      open(signal).last&.pid = pid
    end

    # All orders of this kind that have begun are done.
    #
    # @param signal [String]
    def done(signal) = finish(open(signal), "done")

    # All orders of this kind that have begun have failed, or have no effect.
    #
    # @param signal [String]
    # @param reason [String]
    def failed(signal, reason) = finish(open(signal), "failed", reason)

    # Orders of this kind that have begun before the last one have failed.
    #
    # @param signal [String]
    # @param reason [String]
    def superseded(signal, reason) = finish(open(signal)[...-1], "failed", reason)

    # The last order of this kind takes no part in the outcome of the others until #rejoin.
    #
    # @param signal [String]
    def set_apart(signal)
      @apart = open(signal).last
    end

    # Called when the order set apart counts.
    def rejoin
      @apart = nil
    end

    # The order set apart has no effect.
    #
    # @param reason [String]
    def refuse_apart(reason)
      finish([@apart].compact, "failed", reason)
      rejoin
    end

    # The last order of this kind has no effect. Other orders of this kind go on.
    #
    # @param signal [String]
    # @param reason [String]
    def refused(signal, reason) = finish(open(signal).last(1), "failed", reason)

    private

    def open(signal) = @orders.select { |order| order.signal == signal && order.state == "begun" && !order.equal?(@apart) }

    def finish(orders, state, reason = nil)
      orders.each { |order| order.state, order.reason = state, reason }
    end
  end

  # The master's side of the monitor, a native thread that answers questions about the server (docs/monitor.md). The master tells the
  # monitor all that the scoreboard does not have. The master never waits for the monitor, and a failure of the monitor is no failure of the
  # server.
  class MonitorThread
    # @param launcher [Launcher]
    # @param workers [Workers]
    # @param replaces [Boolean] whether an old master exists: the old master's monitor answers until this server is ready
    # @return [MonitorThread, nil] nil, and a line in the log, where the monitor cannot start
    def self.start(launcher, workers, replaces:)
      configuration = launcher.configuration
      path, address, token = configuration.control.to_a
      # The default socket has this master's pid in its name, so no old master listens there.
      usual = DefaultControlSocket.make if configuration.default_control_socket?
      return if [path, usual, address].none?

      # A supervisor starts the new server beside the old one.
      takes_over = replaces || launcher.supervised?
      endpoints = [path || usual, address, token]
      monitor = Monitor.start(workers.scoreboard, endpoints, names, configuration.max_threads, takes_over, SafeFile.app_user)
      new(launcher, workers, monitor).tap { |thread| thread.listen unless replaces && usual.nil? }
    rescue StandardError => e
      Log.line("no monitor here: #{e.message}") if configuration.control_path || configuration.control_listen
      nil
    end

    # @return [Array<String>] version, Ruby and host, for the monitor's page
    def self.names = [VERSION, StartLines.ruby, Etc.uname[:nodename]].map { |name| Text.utf8(name).scrub }
    private_class_method :names

    # @param monitor [Monitor]
    def initialize(launcher, workers, monitor)
      @launcher = launcher
      @workers = workers
      @monitor = monitor
    end

    # Lets the monitor answer from now on. Called again when a new master has failed, or the socket's file is missing.
    def listen = guarded { @monitor.listen }

    # @param generation [Integer]
    # @param booted [Boolean] whether all workers have been ready
    # @param shutdown [Shutdown, nil]
    # @param orders [Orders]
    # @param other_master [Integer, nil]
    # @param proxy [Proxy::Supervisor, nil]
    # @param saving [Integer, nil] see Refork#saving
    def publish(generation, booted, shutdown, orders, other_master, proxy = nil, saving = nil)
      guarded do
        rows = @workers.all_but_first.reject(&:mold?).map { |one| [one.nr, one.pid, one.generation, one.lingering? ? "lingering" : one.state.to_s, one.spawned_at, one.slot] }
        configuration = @launcher.configuration
        seconds = (configuration.drain_delay + configuration.graceful_timeout).to_f
        server = [phase(booted, shutdown), generation, @workers.size, seconds, other_master, saving]
        @workers.profile.serve(@monitor)
        @monitor.publish(server, rows, molds, listeners, orders.to_a, proxy&.row)
        while (line = @monitor.warning)
          Log.line(line)
        end
      end
    end

    # @param handle [WorkerHandle]
    # @param exited [WorkerExit]
    def exited(handle, exited)
      guarded { @monitor.exited(handle.nr, handle.pid, handle.cause.to_s, exited.to_s) }
    end

    # Ends the monitor. In a forked process this only closes inherited descriptors.
    def close = guarded { @monitor.close }

    private

    # Logs the first exception. The master goes on.
    def guarded
      yield
    rescue StandardError => e
      Log.line("the monitor fails: #{Error.reason(e)}", :error) unless @failed
      @failed = true
    end

    # @return [Array(Array, Array)] the process that forks the workers, and generation 0 if that is another one
    def molds
      first = @workers.first
      source = @workers.source || first
      [source, (first unless first.equal?(source))].map { |one| one && [one.pid, one.generation, one.served, one.noted_memory&.to_a] }
    end

    def phase(booted, shutdown)
      case shutdown
      when nil then booted ? "serving" : "booting"
      when Shutdown::Drain then "draining"
      else "stopping"
      end
    end

    def listeners
      return @rows if @listeners.equal?(@launcher.listeners)

      @listeners = @launcher.listeners
      @rows = @listeners.map { |one| [one.to_s.scrub, one.identity, one.tcp?, one.backlog_limit] }
    end
  end
end
