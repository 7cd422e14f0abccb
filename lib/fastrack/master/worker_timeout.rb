# frozen_string_literal: true

require_relative "../log"

module Fastrack
  # Kills workers that cannot exit by themselves after a request timeout: one that is stopped (SIGSTOP), for example, or
  # blocked on a full log pipe.
  class WorkerTimeout
    # Minimum seconds between two checks.
    INTERVAL = 1

    # @param workers [Workers]
    def initialize(workers)
      @workers = workers
      @due_at = nil
    end

    # @return [Float, nil] monotonic seconds when the next check is due; nil without request timeouts
    attr_reader :due_at

    # @param now [Float] monotonic seconds
    # @param timeout [Float] seconds that a request may take; 0: no limit
    def step(now, timeout)
      return if @due_at && now < @due_at

      @due_at = nil
      @workers.each do |handle|
        at = check(handle, now, timeout) unless handle.killed?
        @due_at = [@due_at, [at, now + INTERVAL].max].compact.min if at
      end
    end

    # There is a new worker to check.
    def reset
      @due_at = nil
    end

    private

    def check(handle, now, timeout)
      at = handle.stuck_at(now, timeout)
      return at if at.nil? || now < at

      Log.line("worker #{handle.nr} (pid #{handle.pid}) does not exit: killing it; it is serving #{handle.request(now)}")
      handle.kill
      nil
    end
  end
end
