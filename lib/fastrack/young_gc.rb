# frozen_string_literal: true

module Fastrack
  # Collects young objects where requests leave so few behind that Ruby itself would not for thousands of them. All that
  # memory would have been touched by then: it is more than the processor's cache holds, and each worker keeps it.
  # Requests that leave much behind have Ruby collect often enough, and then nothing happens here.
  #
  # To be called after a response. It tells how many more may leave until it wants to be called again.
  class YoungGC
    # Responses between two collections at least; a new worker's first ones come sooner, so that it soon has all the memory
    # that it will ever have.
    LEAST = 100
    FIRST = 25

    # A collection takes longer the more objects there are: one more response for so many.
    SLOTS_PER_RESPONSE = 300

    # Whether this Ruby says that the next collection will be a full one, whatever is asked for.
    FORETOLD = GC.latest_gc_info.key?(:need_major_by)

    # @param collector [#start, #count, #stat, #disable, #enable, #latest_gc_info] Ruby's, except in tests
    def initialize(collector = GC)
      @collector = collector
      @count = collector.count
      @interval = FIRST
    end

    # @return [Integer] responses until the next call
    def call
      collect if @count == @collector.count && !full_mark_due? && !disabled?
      @count = @collector.count
      @interval = [@interval * 2, [LEAST, @collector.stat(:heap_live_slots) / SLOTS_PER_RESPONSE].max].min
    end

    private

    # Pages are swept when their room is wanted, which is when they get into the cache anyway.
    def collect
      @collector.start(full_mark: false, immediate_sweep: false)
    end

    # A full one takes many times as long: it comes when Ruby has to make it.
    def full_mark_due?
      FORETOLD && @collector.latest_gc_info(:need_major_by)
    end

    # An app that has switched the collector off has its reasons.
    def disabled?
      @collector.disable.tap { |before| @collector.enable unless before }
    end
  end
end
