# frozen_string_literal: true

require_relative "error"
require_relative "listener/inherited"
require_relative "log"
require_relative "process/last_words"
require_relative "upgrade/masters"
require_relative "upgrade/roots_program"
require_relative "worker/control_channel"

module Fastrack
  # A zero-downtime restart (USR2), on both sides: this master starts a new master, or replaces an old one. A master does one of the two at
  # a time.
  class Upgrade
    # Keeps the channels from the garbage collector.
    KEPT = [] # rubocop:disable Style/MutableConstant
    private_constant :KEPT

    # @param launcher [Launcher]
    # @param orders [Orders] notes the outcome of USR2
    # @param old [OldMaster, nil]
    def initialize(launcher, orders, old = nil)
      @launcher = launcher
      @orders = orders
      @old = old
      @new = nil
      @cancelled = false
      @ready_at = nil
    end

    # @return [Array<ControlChannel>]
    def channels = [@old, @new].compact.map(&:channel).reject(&:closed?)

    # @return [Integer, nil] pid of the other master, new or old, if known
    def other_master = (@new || @old)&.pid

    # Whether an old master still runs.
    def old? = !@old.nil?

    # Whether another master is there, so that this one starts none.
    def busy? = old? || !@new.nil?

    # @return [Float, nil] monotonic seconds when #step has something to do
    def due_at = @new&.due_at

    # Starts a new master, unless an upgrade is in progress.
    #
    # @param now [Float] monotonic seconds
    # @yield in the new master's process, before its program replaces this one
    # @return [Boolean] whether it has been started
    def start(now, &in_child)
      @orders.begin("USR2")
      obstacle = why_not
      return launch(now, in_child) if obstacle.nil?

      Log.line("USR2 is ignored: #{obstacle}")
      @orders.refused("USR2", obstacle)
      false
    end

    # Tells the old master that all workers of this master serve.
    #
    # @param quit [Boolean] whether the old master is to quit now
    def ready(quit:)
      @ready_at = now
      @old&.ready(quit: quit)
    end

    # Stops a new master that is still booting, because the signal was for the whole server.
    #
    # @param name [String] the signal
    def cancel(name)
      return unless @new&.booting?

      @cancelled = true
      @new.signal(name)
    end

    # Whether a new master serves on when this one stops.
    def replaced? = !@new.nil? && !@new.timed_out? && !@cancelled

    # Stops a new master that is late.
    def step(now)
      Log.line("the new master (pid #{@new.pid}) was not ready within BootTimeout; stopping it", :error) if @new&.step(now)
    end

    # Checks whether the new master has ended. Call this after the signals are read: CHLD may come after the end of the channel.
    #
    # @return [Symbol, nil] :alone when the new master has ended
    def reap
      lose_new if @new&.gone?
    end

    # Reads the messages of both masters.
    #
    # @param ready [Array<ControlChannel>] the readable ones
    # @return [Array<Symbol>] :quit or :stop for this master, :alone when the new one has ended, :heir when the old one has
    def read(ready) = [read_new(ready), read_old(ready)].compact

    # Called at the end of this master. The channels stay open until the process ends, at_exit hooks included, because the other master
    # takes the end of a channel for the end of this master.
    def close
      @new&.detach
      KEPT << self
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def launch(now, in_child)
      @launcher.pid_file&.set_aside
      @new = NewMaster.start(@launcher, now, &in_child)
      Log.line("starting a new master (pid #{@new.pid})")
      @orders.started("USR2", @new.pid)
      true
    rescue Exception => e # rubocop:disable Lint/RescueException -- a wrapper of Process._fork, for example
      @launcher.pid_file&.take_back
      Log.line("cannot start a new master, this one carries on: #{Error.reason(e)}", :error)
      @orders.refused("USR2", Error.reason(e))
      false
    end

    def why_not
      if @new then "the new master (pid #{@new.pid}) is already there"
      elsif @old then "the old master is still running"
      elsif Process.pid == 1 then "process 1 is not replaced, because its end would end the container; replace the container"
      elsif ENV[ServerStarter::VARIABLE] then "send HUP to start_server instead"
      else RootsProgram.obstacle(loaded: @launcher.loaded?, config_file: @launcher.configuration.file)
      end
    end

    def read_new(ready)
      return unless @new

      messages = ready.include?(@new.channel) ? @new.messages : []
      return lose_new if @new.gone?
      return if messages.empty? || !@new.booting?

      @new.ready
      Log.line("the new master (pid #{@new.pid}) is ready")
      @orders.done("USR2")
      :quit if messages.any? { |message| message.kind == ControlChannel::READY_AND_QUIT }
    end

    def lose_new
      lost = @new
      lost.channel.close
      @new = nil
      @launcher.pid_file&.take_back
      @launcher.configuration.puma&.write_state
      reason = lost.early_reason
      # The line comes last, when both files are restored.
      Log.line("the new master (pid #{lost.pid}) #{lost.ending}; this one carries on")
      words = LastWords.of(lost.pid) || reason
      @orders.failed("USR2", "the new master (pid #{lost.pid}) #{lost.ending}#{": #{words}" if words}")
      :alone
    end

    def read_old(ready)
      return unless @old && ready.include?(@old.channel)

      messages = @old.channel.read
      return (:stop if messages.any? { |message| message.kind == ControlChannel::TIMED_OUT }) if messages

      @old.channel.close
      @old = nil
      LastWords.close_old
      # At_exit hooks of the old master, such as rackup's, may have removed this master's pid file.
      @launcher.pid_file&.restore_missing
      @launcher.pid_file&.remove_aside
      Log.line("the old master has ended#{@ready_at && format(", %.1f s after this one was ready", now - @ready_at)}")
      :heir
    end
  end
end
