# frozen_string_literal: true

require_relative "../memory/limit"
require_relative "control_channel"

module Fastrack
  # MaxMemoryPerChild: looks at this worker's memory after responses, and has the master replace it when it takes too much.
  class MemoryCheck
    # Seconds between two looks; and between two dear ones, unless the memory grows.
    INTERVAL = 1
    DEAR_INTERVAL = 30

    # @param limit [Integer] bytes of PSS
    # @param channel [ControlChannel] to the master
    # @param memory [#resident, #of] another one in tests
    def initialize(limit, channel, memory = ProcessMemory)
      @limit = limit
      @channel = channel
      @memory = memory
      @due_at = @dear_at = 0
      @bar = 0
      @first = true
    end

    # After a response.
    def call
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      # Another thread may find the worker too large meanwhile.
      due_at = @due_at
      return if due_at.nil? || now < due_at

      @due_at = now + INTERVAL
      check(now)
      @first = false
    end

    private

    # PSS is what is resident at most.
    def check(now)
      resident, anonymous = @memory.resident("self")
      return if resident <= @limit || (now < @dear_at && anonymous < @bar)

      pss = @memory.of("self").pss
      @dear_at = now + DEAR_INTERVAL
      @bar = anonymous + ((@limit - pss) / 2)
      report if pss > @limit
    end

    # Whoever is over the limit when it has just begun would be so again and again.
    def report
      @due_at = nil
      @channel.write(@first ? ControlChannel::TOO_LARGE : ControlChannel::OUTGROWN)
    end
  end
end
