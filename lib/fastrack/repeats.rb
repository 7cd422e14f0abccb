# frozen_string_literal: true

require "io/wait"

module Fastrack
  # Counts what fails again and again, in the master and its workers, so that the log need not say it each time: once, and then at
  # intervals that grow.
  #
  # All processes know it by what is in a pipe: whoever counts takes it out, and puts it back. If a process dies in between, the count
  # begins anew.
  class Repeats
    # Seconds from one line to the next: the first two, and the most; each is twice as long as the one before.
    FIRST = 10
    MOST = 3600

    # Seconds without it after which it is new.
    FORGOTTEN = 60

    # How many are remembered: less than a pipe takes at once (PIPE_BUF, pipe(7)).
    KEPT = 16

    # One of them: the key's hash, how often it has come, when it was said, when it came last, seconds to the next line. Numbers only: the
    # app of a worker could have written anything else for a master of root's.
    ENTRY = "qqddd"
    LENGTH = 40

    # Seconds that another process gets to put them back.
    PATIENCE = 0.1

    def initialize
      @reader, @writer = IO.pipe
      put({})
    end

    # @param key [Object] with a hash that is the same in all processes, as that of a String is in forks
    # @param now [Float] monotonic seconds
    # @return [Integer, nil] how often it has come; nil: it is not to be said now
    def count(key, now = Process.clock_gettime(Process::CLOCK_MONOTONIC))
      all = take
      count, said_at, came_at, interval = all.delete(key.hash)
      fresh = came_at.nil? || now > came_at + FORGOTTEN
      due = fresh || now >= said_at + interval
      count = fresh ? 1 : count + 1
      all[key.hash] = due ? [count, now, now, fresh ? FIRST : [interval * 2, MOST].min] : [count, said_at, now, interval]
      put(all.to_a.last(KEPT).to_h)
      count if due
    end

    def close = [@reader, @writer].each(&:close)

    private

    # @return [Hash{Integer => Array}] how often it has come, when it was said, when it came last, seconds to the next line
    def take
      @reader.wait_readable(PATIENCE)
      # All that a pipe holds, and not more than it should.
      found = @reader.read_nonblock(65_536)
      found = "" if found.bytesize > KEPT * LENGTH || found.bytesize % LENGTH != 0
      found.unpack(ENTRY * (found.bytesize / LENGTH)).each_slice(5).to_h { |key, *entry| [key, entry] }.except(0)
    rescue IO::WaitReadable, SystemCallError, IOError
      {}
    end

    def put(all)
      # Zeros stand for none: an empty pipe is one that another process has emptied to count.
      @writer.write_nonblock(([[0] * 5] + all.map(&:flatten)).last(KEPT).flatten.pack(ENTRY * [all.size + 1, KEPT].min))
    rescue IO::WaitWritable, SystemCallError, IOError
      nil
    end
  end
end
