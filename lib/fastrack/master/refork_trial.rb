# frozen_string_literal: true

require_relative "../log"
require_relative "../memory/limit"

module Fastrack
  # The first worker of a mold, before any others are forked from it: whether its hooks end, whether it serves, and whether it has less
  # memory of its own than the others, which come from where workers came from so far.
  class ReforkTrial
    # It has served for long enough when it has answered REQUESTS; or, while it has none, when the others have answered OTHERS, or
    # nobody any for QUIET seconds.
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
      objection(trial) if over?(trial, now)
    end

    # The worker has answered all that it was to.
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
      return true if trial.requests >= REQUESTS

      # It may be stuck in one.
      !trial.busy? && (@answered - @before - trial.requests >= OTHERS || now - @quiet_since >= QUIET)
    end

    # One that has served less would have less in any case. As a rule the one that has served least is that in the mold's place.
    def objection(trial)
      others = @workers.each.select { |handle| handle.serving? && handle != trial && handle.requests >= [trial.requests, REQUESTS].max }
      usual = others.min_by(&:requests) or return ""
      own, its = [trial, usual].map { |handle| handle.memory&.private }
      # One that has just ended has none.
      return "" if own.nil? || its.nil? || own < its

      "#{trial.name}, the mold's first, has #{ProcessMemory.format(own)} of its own after #{Log.count(trial.requests, "request")}; " \
        "#{usual.name} has #{ProcessMemory.format(its)} after #{usual.requests}"
    end
  end
end
