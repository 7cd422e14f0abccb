# frozen_string_literal: true

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

    # How many are remembered: as Marshal has it, they are less than a pipe takes at once (PIPE_BUF, pipe(7)).
    KEPT = 16

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
      Marshal.load(@reader.read_nonblock(65_536)) # rubocop:disable Security/MarshalLoad -- this process and its parent have written it
    rescue IO::WaitReadable, SystemCallError, IOError, ArgumentError, TypeError
      {}
    end

    def put(all)
      @writer.write_nonblock(Marshal.dump(all))
    rescue IO::WaitWritable, SystemCallError, IOError
      nil
    end
  end
end
