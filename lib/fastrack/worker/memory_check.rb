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

    # After a response, at most once a second. A dear look takes milliseconds, the more, the larger the process is: of a hundred of them
    # one may be for that.
    def call
      started = now
      # Another thread may find the worker too large meanwhile.
      due_at = @due_at
      return if due_at.nil? || started < due_at

      @due_at = started + 1
      # PSS is what is resident at most.
      look(started) if ProcessMemory.resident("self").first > @limit
      @first = false
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def look(started)
      pss = ProcessMemory.of("self").pss
      ended = now
      @due_at = [started + 1, ended + ((ended - started) * 100)].max
      report if pss > @limit
    end

    # Whoever is over the limit when it has just begun would be so again and again.
    def report
      @due_at = nil
      @channel.write(@first ? ControlChannel::TOO_LARGE : ControlChannel::OUTGROWN)
    end
  end
end
