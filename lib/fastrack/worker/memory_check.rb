# frozen_string_literal: true

require_relative "../memory/limit"
require_relative "control_channel"

module Fastrack
  # MaxMemoryPerChild: looks at this worker's memory after responses, and has the master replace it when it takes too much.
  class MemoryCheck
    # @param limit [Integer] bytes of PSS
    # @param channel [ControlChannel] to the master
    def initialize(limit, channel)
      @limit = limit
      @channel = channel
      @due_at = 0
      @first = true
    end

    # After a response, at most once a second.
    def call
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      # Another thread may find the worker too large meanwhile.
      due_at = @due_at
      return if due_at.nil? || now < due_at

      @due_at = now + 1
      # PSS is what is resident at most.
      look(now) if ProcessMemory.resident("self").first > @limit
      @first = false
    end

    private

    # That is dear, the more, the larger the process is: a hundredth of the time may be for it.
    def look(now)
      before = computed
      pss = ProcessMemory.of("self").pss
      @due_at = now + [1, (computed - before) * 100].max
      report if pss > @limit
    end

    def computed = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)

    # Whoever is over the limit when it has just begun would be so again and again.
    def report
      @due_at = nil
      @channel.write(@first ? ControlChannel::TOO_LARGE : ControlChannel::OUTGROWN)
    end
  end
end
