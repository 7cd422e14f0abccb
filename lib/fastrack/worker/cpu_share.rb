# frozen_string_literal: true

module Fastrack
  # How much of a CPU this process takes: 0.5 if it has computed for half of the time.
  class CpuShare
    # Seconds that a figure is of, at least.
    PERIOD = 1.0

    def initialize
      @value = 0.0
      begin_period
    end

    # @return [Float] of the last period that is over
    def value
      passed = now(Process::CLOCK_MONOTONIC) - @began
      if passed >= PERIOD
        @value = (now(Process::CLOCK_PROCESS_CPUTIME_ID) - @cpu) / passed
        begin_period
      end
      @value
    end

    private

    def begin_period
      @began = now(Process::CLOCK_MONOTONIC)
      @cpu = now(Process::CLOCK_PROCESS_CPUTIME_ID)
    end

    def now(clock) = Process.clock_gettime(clock)
  end
end
