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
  # What has come of the last orders to start processes: HUP, USR2 and URG. The monitor tells it, and `fastrack restart` and the like wait
  # for it.
  class Orders
    SIGNALS = %w[HUP USR2 URG].freeze

    # They are kept for clients that wait: few do at one time.
    KEPT = 16

    # @attr number [Integer] orders of this master up to this one
    # @attr signal [String]
    # @attr state [String] begun, done or failed
    # @attr reason [String, nil] why it has failed
    # @attr pid [Integer, nil] of the new master
    Order = Struct.new(:number, :signal, :state, :reason, :pid)

    # @yield when one has begun, before that goes on: clients that give an order meanwhile are not to take this one for theirs
    def initialize(&begun)
      @begun = begun
      @orders = []
      @count = 0
    end

    # @return [Array<Array>] the last ones, as Monitor#publish takes them
    def to_a = @orders.map(&:to_a)

    # @param signal [String]
    def begin(signal)
      @orders.shift if @orders.size == KEPT
      @orders << Order.new(@count += 1, signal, "begun")
      @begun.call
    end

    # @param signal [String]
    # @param pid [Integer] of the new master that the last order of this kind has started
    def started(signal, pid)
      open(signal).last&.pid = pid
    end

    # All orders of this kind that have begun are done.
    #
    # @param signal [String]
    def done(signal) = finish(open(signal), "done")

    # They have failed, or come to nothing.
    #
    # @param signal [String]
    # @param reason [String]
    def failed(signal, reason) = finish(open(signal), "failed", reason)

    # The last one has come to nothing; others of its kind go on.
    #
    # @param signal [String]
    # @param reason [String]
    def refused(signal, reason) = finish(open(signal).last(1), "failed", reason)

    private

    def open(signal) = @orders.select { |order| order.signal == signal && order.state == "begun" }

    def finish(orders, state, reason = nil)
      orders.each { |order| order.state, order.reason = state, reason }
    end
  end

  # The master's side of the monitor, a native thread that answers whoever asks what the server does (docs/monitor.md). It is
  # told what only the master knows. Nothing here waits for it, and no failure of it is one of the server.
  class MonitorThread
    # @param launcher [Launcher]
    # @param workers [Workers]
    # @param replaces [Boolean] whether there is an old master: its monitor answers until this server is ready
    # @return [MonitorThread, nil] nil, and a line in the log, where there can be none
    def self.start(launcher, workers, replaces:)
      configuration = launcher.configuration
      path, address, token = configuration.control.to_a
      # That is a place of its own, which no old master has.
      usual = DefaultControlSocket.make if configuration.default_control_socket?
      return if [path, usual, address].none?

      # A supervisor starts the new server beside the old one.
      takes_over = replaces || launcher.supervised?
      place = [path || usual, address, token]
      monitor = Monitor.start(workers.scoreboard, place, names, configuration.max_threads, takes_over, SafeFile.app_user)
      new(launcher, workers, monitor).tap { |thread| thread.listen unless replaces && usual.nil? }
    rescue StandardError => e
      Log.line("no monitor here: #{e.message}") if configuration.control_path || configuration.control_listen
      nil
    end

    # @return [Array<String>] what its page says that it is the page of
    def self.names = [VERSION, StartLines.ruby, Etc.uname[:nodename]].map { |name| Text.utf8(name).scrub }
    private_class_method :names

    # @param monitor [Monitor]
    def initialize(launcher, workers, monitor)
      @launcher = launcher
      @workers = workers
      @monitor = monitor
    end

    # Has it answer from now on; again when a new master has failed, or the socket's file is gone.
    def listen = guarded { @monitor.listen }

    # @param generation [Integer]
    # @param booted [Boolean] whether all workers have been ready
    # @param shutdown [Shutdown, nil]
    # @param orders [Orders]
    # @param other_master [Integer, nil]
    def publish(generation, booted, shutdown, orders, other_master)
      guarded do
        rows = @workers.each.reject(&:mold?).map { |one| [one.nr, one.pid, one.generation, one.state.to_s, one.spawned_at, one.slot] }
        mold = @workers.each.select(&:mold?).map { |one| [one.pid, one.generation, one.served, one.noted_memory&.to_a] }.last
        configuration = @launcher.configuration
        seconds = (configuration.drain_delay + configuration.graceful_timeout).to_f
        @monitor.publish([phase(booted, shutdown), generation, @workers.size, seconds, other_master], rows, mold, listeners, orders.to_a)
        while (line = @monitor.complaint)
          Log.line(line)
        end
      end
    end

    # @param handle [WorkerHandle]
    # @param exited [WorkerExit]
    def exited(handle, exited)
      guarded { @monitor.exited(handle.nr, handle.pid, handle.cause.to_s, exited.to_s) }
    end

    # Ends it. In a process that was forked, this only closes what that has inherited.
    def close = guarded { @monitor.close }

    private

    # What the master does next does not depend on it.
    def guarded
      yield
    rescue StandardError => e
      Log.line("the monitor fails: #{Error.reason(e)}", :error) unless @failed
      @failed = true
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
