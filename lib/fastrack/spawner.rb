# frozen_string_literal: true

require_relative "clock"
require_relative "worker/control_channel"
require_relative "process/fork_guard"
require_relative "hook"
require_relative "log"
require_relative "worker"
require_relative "master/worker_handle"
require_relative "worker_record"

module Fastrack
  # Forks workers off the master, with everything that they need from it.
  class Spawner
    # @param launcher [Launcher]
    # @param app [#call]
    # @param signals [SignalQueue] the master's
    # @param lifeline [Lifeline]
    def initialize(launcher, app, signals, lifeline)
      @launcher = launcher
      @app = app
      @signals = signals
      @lifeline = lifeline
      @channels = []
      @scoreboard = Scoreboard.new
    end

    # @return [Array<ControlChannel>] both ends to the worker that was spawned last, or is being spawned
    attr_reader :channels

    # @param nr [Integer] the slot
    # @param others [Array<ControlChannel>] the master's ends to the workers that are there, which a worker has to close
    # @return [WorkerHandle, nil] nil when it failed; the log says why
    def spawn(nr, generation, others)
      record = WorkerRecord.new(@scoreboard)
      worker = Worker.new(nr, @launcher, @app, record.place)
      Hook.call(@launcher.configuration.before_fork, @launcher, worker)
      ForkGuard.own_fork { fork_off(worker, generation, others, record) }
    rescue StandardError, ScriptError => e
      # Later it may succeed: memory and pids come free, a database that a hook needs comes back.
      record&.release
      Log.exception("cannot spawn worker #{nr}", e)
      nil
    end

    private

    def fork_off(worker, generation, others, record)
      @channels = ControlChannel.pair
      Log.flush
      pending = @signals.size
      pid, channel = ControlChannel.fork(@channels) do |theirs|
        others.each(&:close)
        worker.live(theirs, @signals, pending, @lifeline)
      end
      WorkerHandle.new(worker.nr, pid, generation, channel, record, Clock.now)
    end
  end
end
