# frozen_string_literal: true

require_relative "../log"

module Fastrack
  # The master's watch over workers that cannot end themselves: one that is stopped (SIGSTOP), or whose log nobody reads.
  # Any other worker ends by itself when a request takes too long, and answers the client.
  class Overseer
    # Seconds between two looks at least.
    STEP = 1

    # @param pool [WorkerPool]
    def initialize(pool)
      @pool = pool
      @due_at = nil
    end

    # @return [Float, nil] when the next look is due, in monotonic seconds; nil when requests may take any time
    attr_reader :due_at

    # @param now [Float] monotonic seconds
    # @param timeout [Float] seconds that a request may take; 0: any
    def step(now, timeout)
      return if @due_at && now < @due_at

      @due_at = nil
      @pool.each do |handle|
        at = look(handle, now, timeout) unless handle.killed?
        @due_at = [@due_at, [at, now + STEP].max].compact.min if at
      end
    end

    # There is another worker.
    def spawned
      @due_at = nil
    end

    private

    def look(handle, now, timeout)
      at = handle.record.stuck_at(now, timeout)
      return at if at.nil? || now < at

      Log.line("worker #{handle.nr} (pid #{handle.pid}) is killed: #{handle.record.request(now)}, and does not end")
      handle.kill
      nil
    end
  end
end
