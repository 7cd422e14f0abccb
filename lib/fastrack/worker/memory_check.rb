# frozen_string_literal: true

require_relative "../process/memory"
require_relative "control_channel"

module Fastrack
  # Writes this worker's memory into the scoreboard, where the master may not read it from /proc: see ProcessMemory.hidden_from?.
  class MemoryNote
    # @param entry [Array(Scoreboard, Integer), nil] scoreboard entry of the worker
    # @return [MemoryNote, nil] nil where the master can read this worker's memory
    def self.for(entry)
      new(*entry) if entry && ProcessMemory.hidden_from?(Fastrack.scoreboard.last)
    end

    def initialize(scoreboard, slot)
      @scoreboard = scoreboard
      @slot = slot
      @due_at = @responses = @next = 0
    end

    # Called after each response. Writes once a second at most, and also when the number of responses has doubled: a burst may end within
    # the second.
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

  # MaxMemoryPerChild: checks this worker's memory after responses, and tells the master when the worker takes too much.
  class MemoryCheck
    # A check costs more in a larger process. Checks may take a hundredth of the time.
    #
    # @yield to the check
    # @return [Numeric] seconds until the next check
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

    # Called after each response. Checks once a second at most.
    def call
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      # Another thread may set `@due_at` to nil meanwhile.
      due_at = @due_at
      return if due_at.nil? || now < due_at

      @due_at = now + 1
      # PSS is never more than the resident memory, which is cheaper to read.
      look(now) if ProcessMemory.resident("self").first > @limit
      @first = false
    end

    private

    def look(now)
      pss = 0
      @due_at = now + MemoryCheck.pause { pss = ProcessMemory.of("self")&.pss.to_i }
      report if pss > @limit
    end

    # Reports once if the first check is over the limit, because each replacement would be over the limit, too.
    def report
      @due_at = nil
      @note&.write
      @channel.write(@first ? ControlChannel::TOO_LARGE : ControlChannel::OUTGROWN)
    end
  end
end
