# frozen_string_literal: true

require_relative "../log"
require_relative "../process/memory"

module Fastrack
  # The trial of a mold, by its first worker, before the mold forks others. The trial shows whether the worker's hooks end, whether the
  # worker serves, and whether it has less memory of its own than the workers from before.
  class ReforkTrial
    # The trial is over when the worker has answered ENOUGH_REQUESTS. It is also over, while the worker is idle, when the others have answered
    # OTHERS_REQUESTS, or when no worker has answered any for QUIET_TIME seconds.
    ENOUGH_REQUESTS = 10
    OTHERS_REQUESTS = 50
    QUIET_TIME = 5

    # Seconds between two checks.
    CHECK_INTERVAL = 0.25

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
    # @return [String, nil] nil while the trial lasts; then the objection to the mold, empty if there is none
    def step(now)
      @due_at = now + CHECK_INTERVAL
      return "" if @passed

      trial = @workers.trial or return @workers.try(@mold).then { nil }
      return unless trial.serving?

      note_requests(now)
      objection(trial) if over?(trial, now)
    end

    # The worker has answered as many requests as its limit allows.
    def pass
      @passed = true
    end

    private

    def note_requests(now)
      answered = @workers.scoreboard.totals[:requests]
      @before ||= answered
      @quiet_since = now unless answered == @answered
      @answered = answered
    end

    def over?(trial, now)
      return true if trial.requests >= ENOUGH_REQUESTS

      # A busy worker may be stuck in its request.
      !trial.busy? && (@answered - @before - trial.requests >= OTHERS_REQUESTS || now - @quiet_since >= QUIET_TIME)
    end

    # Compares only workers that have served as much as the trial's, because a worker that has served less has less memory. The worker that
    # has served least is usually the one in the mold's slot.
    def objection(trial)
      others = @workers.each.select { |handle| handle.serving? && handle != trial && handle.requests >= [trial.requests, ENOUGH_REQUESTS].max }
      usual = others.min_by(&:requests) or return ""
      own, its = [trial, usual].map { |handle| handle.memory&.private }
      # A worker that has just ended has no figures.
      return "" if own.nil? || its.nil? || own < its

      "#{trial.name}, the mold's first, has #{ProcessMemory.format(own)} of its own after #{Log.count(trial.requests, "request")}; " \
        "#{usual.name} has #{ProcessMemory.format(its)} after #{usual.requests}"
    end
  end
end
