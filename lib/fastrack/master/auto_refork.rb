# frozen_string_literal: true

require_relative "../log"
require_relative "../memory/limit"

module Fastrack
  # When to refork by itself (`refork true`): once workers have run what the app's code mostly runs, and have taken the memory for it.
  class AutoRefork
    # Requests for each worker before the first refork, and the factor from one refork to the next: less and less code
    # runs for the first time. A worker may end between, as at MaxRequestPerChild: its successor is also of the mold.
    FIRST = 50
    FACTOR = 4

    # Generations.
    MOST = 6

    # Seconds between two looks at the number of requests, and what that has to have grown by from one look at the memory to the next:
    # those are dear, so that there are fewer and fewer.
    INTERVAL = 2
    MORE = 1.25

    # The workers' own memory, which is what has grown since their fork, grows no more when it has by less than this from one look to the
    # next. As a part of the whole, it is worth sharing from that on.
    GROWTH = 0.05
    SHARE = 0.1

    # What a generation has to save of the whole, for there to be another one.
    GAIN = 0.05

    # @return [Float, nil] monotonic seconds when #due? has something to do
    attr_reader :due_at

    # @param workers [Workers]
    def initialize(workers)
      @workers = workers
      @generation = 0
      @due_at = 0.0
      @start = 0
      @target = FIRST
    end

    # @param now [Float] monotonic seconds
    # @return [Boolean] whether it is time
    def due?(now)
      return false if @due_at.nil? || now < @due_at

      @due_at = now + INTERVAL
      served = answered - @start
      return false if served < @target * @workers.size

      @target = served.fdiv(@workers.size) * MORE
      before, @own = @own, own
      !before.nil? && @own < before * (1 + GROWTH) && worth?
    end

    # A refork has begun, by itself or not.
    def begun
      @generation += 1
      @whole = whole
      @own = nil
      @start = answered
      @target = FIRST * (FACTOR**@generation)
      @due_at = nil if @generation == MOST
    end

    # The one that has begun has come to nothing, and not for want of a gain.
    def undone
      @generation -= 1
      @target = FIRST * (FACTOR**@generation)
      @whole = nil
      @due_at = 0.0
    end

    private

    def answered = @workers.scoreboard.totals[:requests]

    # Bytes that workers have each for itself.
    def own = @workers.each.select(&:serving?).filter_map(&:memory).sum(&:private)

    # What all processes take, for each worker: their number may change.
    def whole
      ProcessMemory.pss(@workers.each) / [@workers.size, 1].max
    end

    def worth?
      size = whole
      return @own > size * @workers.size * SHARE if @whole.nil? || size < @whole * (1 - GAIN)

      @due_at = nil
      Log.line("refork: that was the last one: it has saved #{((1 - size.fdiv(@whole)) * 100).round} % of the memory")
      false
    end
  end
end
