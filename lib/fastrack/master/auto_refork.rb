# frozen_string_literal: true

require_relative "../log"
require_relative "../process/memory"
require_relative "own_memory"

module Fastrack
  # Decides when to refork (`refork true`): once workers have run most of the app's code, and their memory grows no more.
  class AutoRefork
    # Factor of the requests from one refork to the next: less and less code runs for the first time.
    REQUESTS_FACTOR = 4

    # Most reforks of a server.
    MOST_REFORKS = 6

    # Seconds between two checks of the number of requests.
    CHECK_INTERVAL = 2

    # Share of own memory in the whole from which a refork is worth its cost.
    OWN_SHARE = 0.1

    # Share of the whole memory that a refork must have saved, or else no other one follows.
    LEAST_SAVING = 0.05

    # @param workers [Workers]
    def initialize(workers)
      @workers = workers
      @own = OwnMemory.new(workers, CHECK_INTERVAL..CHECK_INTERVAL)
      @generation = 0
    end

    # @return [Float, nil] monotonic seconds when #due? has something to do
    def due_at = (@own.due_at unless @over)

    # @param now [Float] monotonic seconds
    # @return [Boolean] whether a refork is due
    def due?(now) = !@over && @own.settled?(now) && worth?

    # Called when a refork has begun, by this class or by an order.
    def begun
      @generation += 1
      @whole = whole
      @own.restart(target)
      @over = @generation == MOST_REFORKS
    end

    # The refork has come to nothing, for a reason other than memory.
    def undone
      @generation -= 1
      @whole = nil
      @own.restart(target)
      @over = false
    end

    private

    # Requests for each worker before the next refork.
    def target = OwnMemory::FIRST_REQUESTS * (REQUESTS_FACTOR**@generation)

    # PSS of all processes, per worker, because the number of workers may change.
    def whole
      ProcessMemory.pss(@workers.each.reject(&:lingering?)) / [@workers.size, 1].max
    end

    def worth?
      size = whole
      return @own.bytes > size * @workers.size * OWN_SHARE if @whole.nil? || size < @whole * (1 - LEAST_SAVING)

      @over = true
      Log.line("refork: no more by itself: the last one has saved #{((1 - size.fdiv(@whole)) * 100).round} % of the memory")
      false
    end
  end
end
