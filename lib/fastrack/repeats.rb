# frozen_string_literal: true

require "io/wait"

module Fastrack
  # Counts repeated failures in the master and the workers. The log has a failure once, and then at growing intervals.
  #
  # All processes share the counts by a pipe. A process that counts reads the pipe empty, and writes the new counts back. If a process dies
  # in between, the counts start at zero.
  class Repeats
    # Seconds between two log lines of a failure: the first interval, and the longest. Each interval is twice as long as the one before.
    FIRST_INTERVAL = 10
    LONGEST_INTERVAL = 3600

    # Seconds without a failure after which the failure counts as new.
    FORGET_AFTER = 60

    # Failures that are remembered. Their entries take less than PIPE_BUF, so that one write is atomic (pipe(7)).
    KEPT_FAILURES = 16

    # An entry: hash of the key, count, time of the last line, time of the last failure, seconds to the next line. Entries are numbers only,
    # because the app of a worker can write to the pipe, and the master may be root's.
    ENTRY = "qqddd"
    ENTRY_LENGTH = 40

    # Seconds that another process gets to write the counts back.
    WRITE_BACK_TIME = 0.1

    # @param reader [IO] of the master's counts, in a process that has inherited them
    # @param writer [IO]
    def initialize(reader = nil, writer = nil)
      @reader, @writer = reader, writer
      return if reader

      @reader, @writer = IO.pipe
      put({})
    end

    # @return [Array<Integer>] the descriptors
    def filenos = [@reader, @writer].map(&:fileno)

    # @param key [Object] its hash must be equal in all processes, as a String's is in forks
    # @param now [Float] monotonic seconds
    # @return [Integer, nil] failures so far; nil: no line is due
    def count(key, now = Process.clock_gettime(Process::CLOCK_MONOTONIC))
      all = take
      count, said_at, came_at, interval = all.delete(key.hash)
      fresh = came_at.nil? || now > came_at + FORGET_AFTER
      due = fresh || now >= said_at + interval
      count = fresh ? 1 : count + 1
      all[key.hash] = due ? [count, now, now, fresh ? FIRST_INTERVAL : [interval * 2, LONGEST_INTERVAL].min] : [count, said_at, now, interval]
      put(all.to_a.last(KEPT_FAILURES).to_h)
      count if due
    end

    def close = [@reader, @writer].each(&:close)

    private

    # @return [Hash{Integer => Array}] count, time of the last line, time of the last failure, seconds to the next line
    def take
      @reader.wait_readable(WRITE_BACK_TIME)
      # A pipe holds 64 KiB. Content that is no whole number of entries, or too long, was not written by this class.
      found = @reader.read_nonblock(65_536)
      found = "" if found.bytesize > KEPT_FAILURES * ENTRY_LENGTH || found.bytesize % ENTRY_LENGTH != 0
      found.unpack(ENTRY * (found.bytesize / ENTRY_LENGTH)).each_slice(5).to_h { |key, *entry| [key, entry] }.except(0)
    rescue IO::WaitReadable, SystemCallError, IOError
      {}
    end

    def put(all)
      # An entry of zeros stands for no failures. An empty pipe means that another process is counting.
      @writer.write_nonblock(([[0] * 5] + all.map(&:flatten)).last(KEPT_FAILURES).flatten.pack(ENTRY * [all.size + 1, KEPT_FAILURES].min))
    rescue IO::WaitWritable, SystemCallError, IOError
      nil
    end
  end
end
