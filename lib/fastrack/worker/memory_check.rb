# frozen_string_literal: true

require_relative "../process/memory"
require_relative "control_channel"

module Fastrack
  # Tells the master what this worker takes, where the master may not look itself: see ProcessMemory.hidden_from?.
  class MemoryNote
    # @param entry [Array(Scoreboard, Integer), nil] the worker's
    # @return [MemoryNote, nil] nil where the master may look
    def self.for(entry)
      new(*entry) if entry && ProcessMemory.hidden_from?(Fastrack.scoreboard.last)
    end

    def initialize(scoreboard, slot)
      @scoreboard = scoreboard
      @slot = slot
      @due_at = @responses = @next = 0
    end

    # After a response, at most once a second, but when there were twice as many as the last time: a burst may end within that.
    def call
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      @responses += 1
      return if now < @due_at && @responses < @next

      @next = @responses * 2
      @due_at = now + MemoryCheck.pause { write }
    end

    def write
      memory = ProcessMemory.of("self") and @scoreboard.note_memory(@slot, *memory)
    end
  end

  # MaxMemoryPerChild: looks at this worker's memory after responses, and has the master replace it when it takes too much.
  class MemoryCheck
    # Looking is dear, the more, the larger the process is: a hundredth of the time may be for it.
    #
    # @yield looks
    # @return [Numeric] seconds until the next look
    def self.pause
      before = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      yield
      [1, (Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - before) * 100].max
    end

    # @param limit [Integer] bytes of PSS
    # @param channel [ControlChannel] to the master
    # @param note [MemoryNote, nil]
    def initialize(limit, channel, note)
      @limit = limit
      @note = note
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

    def look(now)
      pss = 0
      @due_at = now + MemoryCheck.pause { pss = ProcessMemory.of("self")&.pss.to_i }
      report if pss > @limit
    end

    # Whoever is over the limit when it has just begun would be so again and again.
    def report
      @due_at = nil
      @note&.write
      @channel.write(@first ? ControlChannel::TOO_LARGE : ControlChannel::OUTGROWN)
    end
  end
end
