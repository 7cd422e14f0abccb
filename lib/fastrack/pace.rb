# frozen_string_literal: true

module Fastrack
  # When the master may spawn again. Times are monotonic seconds.
  class Pace
    # @param spawn_interval [Float] seconds between two spawns
    # @param error_interval [Float] seconds after a failure
    def initialize(spawn_interval, error_interval)
      @spawn_interval = spawn_interval
      @error_interval = error_interval
      @not_before = 0.0
    end

    # @return [Float] when the next spawn may be
    attr_reader :not_before

    def spawned(now)
      @not_before = [@not_before, now + @spawn_interval].max
    end

    # A spawn has failed, or a worker has ended with an error.
    def failed(now)
      @not_before = [@not_before, now + @error_interval].max
    end

    # A worker was killed by a signal. One that has served for a while is replaced at once; one that dies as soon as it
    # is there is not to be spawned in a tight loop.
    def killed(spawned_at)
      @not_before = [@not_before, spawned_at + @error_interval].max
    end
  end
end
