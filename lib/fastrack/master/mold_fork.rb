# frozen_string_literal: true

require_relative "../error"
require_relative "../process/orphans"

module Fastrack
  # Has the mold fork a worker, which becomes a child of this process's.
  class MoldFork
    # Seconds for the answer.
    TIME = 5

    # @param launcher [Launcher]
    def initialize(launcher)
      @launcher = launcher
    end

    # @param mold [WorkerHandle]
    # @param worker [Worker] as it would be forked here
    # @param pair [Array(ControlChannel, ControlChannel)] the second is the worker's
    # @yieldparam message [String] each message of the mold's that is no answer
    # @return [Array(Integer, ControlChannel)] its pid, and this end
    # @raise [StandardError] when there is no worker, or nobody knows: then it ends, as its channel does
    def call(mold, worker, pair, &other)
      ours, theirs = pair
      pid = mold.channel.order(worker.nr, worker.scoreboard_entry&.last, [theirs.to_io, *descriptors], TIME, &other)
      raise Error, "it could not fork" unless pid.positive?

      Orphans.own(pid)
      [pid, ours]
    rescue StandardError, TimeLimit::Unfinished
      ours.close
      raise
    ensure
      theirs.close
    end

    private

    # The mold has none of its own: nothing but the master holds the port.
    def descriptors
      [*@launcher.listeners, *@launcher.queue&.fds].map { |one| IO.for_fd(one.is_a?(Integer) ? one : one.fileno, autoclose: false) }
    end
  end
end
