# frozen_string_literal: true

require_relative "../process/memory"

module Fastrack
  # The memory that workers have for themselves, and whether it has settled: workers have run most of the app's code by then.
  class OwnMemory
    # Requests for each worker before the first look. A worker that ends meanwhile, as at MaxRequestPerChild, changes nothing.
    FIRST_REQUESTS = 50

    # Growth of the number of requests from one look at the memory to the next. Looks are costly, so they become fewer and fewer.
    REQUESTS_GROWTH = 1.25

    # The memory counts as settled once it grows by less than this share from one look to the next.
    GROWTH = 0.05

    # @return [Float] monotonic seconds when #settled? has something to do
    attr_reader :due_at

    # @return [Integer, nil] bytes of the workers' own pages at the last look
    attr_reader :bytes

    # @param workers [Workers]
    # @param intervals [Range<Numeric>] seconds between two checks of the number of requests: each is twice as long as the one before
    def initialize(workers, intervals)
      @workers = workers
      @intervals = intervals
      @interval = intervals.begin
      @due_at = 0.0
      @start = 0
      @target = FIRST_REQUESTS
    end

    # Begins anew.
    #
    # @param target [Integer] requests for each worker before the first look
    # @param start [Integer] requests that do not count
    def restart(target, start = answered)
      @target = target
      @start = start
      @bytes = nil
      @due_at = 0.0
    end

    # @param now [Float] monotonic seconds
    # @return [Boolean] whether a look was due and has found the memory settled
    def settled?(now)
      return false if now < @due_at

      @due_at = now + @interval
      @interval = [@interval * 2, @intervals.end].min
      served = answered - @start
      return false if served < @target * @workers.size

      @target = served.fdiv(@workers.size) * REQUESTS_GROWTH
      before, @bytes = @bytes, measure
      !before.nil? && @bytes < before * (1 + GROWTH)
    end

    private

    def answered = @workers.scoreboard.totals[:requests]

    def measure = @workers.each.select(&:serving?).filter_map(&:memory).sum(&:private)
  end
end
