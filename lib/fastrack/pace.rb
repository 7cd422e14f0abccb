# frozen_string_literal: true

module Fastrack
  # When the master may spawn again. Times are monotonic seconds.
  class Pace
    # @param configuration [Configuration]
    def initialize(configuration)
      @not_before = 0.0
      adopt(configuration)
    end

    # From now on. What has been put off stays put off.
    def adopt(configuration)
      @spawn_interval = configuration.spawn_interval
      @error_interval = configuration.err_respawn_interval
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
