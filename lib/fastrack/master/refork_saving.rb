# frozen_string_literal: true

require_relative "../log"
require_relative "../process/memory"
require_relative "auto_refork"
require_relative "own_memory"

module Fastrack
  # The memory that a refork would save: private memory that the workers would share. Measured while there is no mold and no AutoRefork. A
  # refork saves all of it at first. Later workers write to some pages, as in full GCs, and these pages are private again. The calculation:
  # the mold keeps its memory, and each worker keeps as much private memory as a worker that has just booted.
  class ReforkSaving
    # Seconds between two checks of the number of requests.
    CHECK_INTERVALS = (2..60).freeze

    # @return [Integer, nil] bytes; nil until they are known
    attr_reader :bytes

    # @param workers [Workers]
    def initialize(workers)
      @workers = workers
      @own = OwnMemory.new(workers, CHECK_INTERVALS)
    end

    # @return [Float] monotonic seconds when #step has something to do
    def due_at = @own.due_at

    # @param now [Float] monotonic seconds
    def step(now)
      @fresh ||= fresh
      return unless @own.settled?(now) && @fresh

      sizes = @workers.each.select(&:serving?).filter_map(&:memory).map { |memory| [memory.private - @fresh, 0].max }
      @bytes = sizes.sum - sizes.max.to_i
      say(sizes.size)
    end

    # Other workers serve from now on.
    def restart
      @fresh = @bytes = nil
      @own.restart(OwnMemory::FIRST_REQUESTS)
    end

    private

    # @return [Integer, nil] private bytes of a worker that has just booted
    def fresh = @workers.each.find { |handle| handle.serving? && handle.requests.zero? }&.memory&.private

    def say(count)
      whole = ProcessMemory.pss(@workers.each)
      return if @said || @bytes < whole * AutoRefork::OWN_SHARE

      @said = true
      Log.line("refork: #{Log.count(count, "worker")} would share up to #{ProcessMemory.format(@bytes)} of #{ProcessMemory.format(whole)}, " \
               "with `refork true` or after `fastrack refork`")
    end
  end
end
