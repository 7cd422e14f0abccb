# frozen_string_literal: true

require_relative "../log"
require_relative "../memory/limit"

module Fastrack
  # The first worker of a mold, before any others are forked from it: whether its hooks end, whether it serves, and whether it has less
  # memory of its own than a worker from where workers come from so far. That is the one which has taken the mold's place: it is about
  # as old.
  class ReforkTrial
    # It has served for long enough when it has answered so many requests; or, while it has none, when the others have answered so many, or
    # nobody any for so many seconds.
    REQUESTS = 10
    OTHERS = 50
    QUIET = 5

    # Seconds between two looks.
    INTERVAL = 0.25

    # @return [WorkerHandle]
    attr_reader :mold

    # @return [Float] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param workers [Workers]
    # @param mold [WorkerHandle]
    def initialize(workers, mold)
      @workers = workers
      @mold = mold
      @due_at = 0.0
    end

    # @param now [Float] monotonic seconds
    # @return [String, nil] nil while it lasts, then what there is to say against the mold: nothing if that is empty
    def step(now)
      @due_at = now + INTERVAL
      return "" if @passed

      trial = @workers.trial or return @workers.try(@mold).then { nil }
      return unless trial.serving?

      note_requests(now)
      objection(trial, usual) if over?(trial, usual, now)
    end

    # The worker has answered all that it was to.
    def pass
      @passed = true
    end

    private

    def usual
      @workers.each.find { |handle| handle.serving? && handle.nr == @mold.nr && !handle.equal?(@workers.trial) }
    end

    def note_requests(now)
      answered = @workers.scoreboard.totals[:requests]
      @before ||= answered
      @quiet_since = now unless answered == @answered
      @answered = answered
    end

    def over?(trial, usual, now)
      return true if trial.requests >= REQUESTS && (usual.nil? || usual.requests >= trial.requests)

      # It may be stuck in one.
      !trial.busy? && (@answered - @before - trial.requests >= OTHERS || now - @quiet_since >= QUIET)
    end

    # With fewer requests than the other one it would have less in any case.
    def objection(trial, usual)
      return "" if usual.nil? || trial.requests < REQUESTS || usual.requests < trial.requests

      own, others = [trial, usual].map { |handle| ProcessMemory.of(handle.pid).private }
      return "" if own < others

      "#{trial.name}, the mold's first, has #{ProcessMemory.format(own)} of its own after #{trial.requests} requests, as much as " \
        "#{usual.name} (#{ProcessMemory.format(others)})"
    end
  end
end
