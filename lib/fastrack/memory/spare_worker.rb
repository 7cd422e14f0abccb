# frozen_string_literal: true

require_relative "../log"

module Fastrack
  # Judges whether one worker less would have done for a whole period: at no look all workers were busy, and requests did not wait.
  class SpareWorker
    # Seconds in the queue that count as no wait: a bound of the histogram of Fastrack.stats.
    NO_WAIT = 0.01

    # The share of requests that must not have waited.
    SHARE = 0.99

    # @param period [Float] seconds; 0: never
    # @param least [Integer] workers that always stay
    def initialize(period, least)
      @period = period
      @least = [least, 2].max
    end

    # @param now [Float] monotonic seconds
    # @param size [Integer] workers
    # @param busy [Integer] workers that have requests now
    # @yieldreturn [Hash] `queue_time` of Fastrack.stats; asked at the ends of a period
    # @return [String, nil] the figures, if the period is over and one worker was not needed
    def look(now, size, busy)
      begin_period(now, size, yield) unless @size == size
      @most = [@most, busy].max
      return if @period.zero? || size <= @least || now - @since < @period

      times = yield
      requests = times[:count] - @queue_time[:count]
      prompt = times[:buckets][NO_WAIT] - @queue_time[:buckets][NO_WAIT]
      most = @most
      begin_period(now, size, times)
      "at most #{most} busy in #{@period.round} s, #{prompt} of #{Log.count(requests, "request")} in the queue for less than 10 ms" if most < size && prompt >= requests * SHARE
    end

    private

    def begin_period(now, size, queue_time)
      @since, @size, @queue_time, @most = now, size, queue_time, 0
    end
  end
end
