# frozen_string_literal: true

module Fastrack
  # The master's signals. A handler only notes the signal and wakes the master, which acts on it in its own time: little
  # else is safe inside of a handler (signal-safety(7); Ruby allows no lock there).
  class SignalQueue
    # @return [IO] readable when something is in the queue
    attr_reader :reader

    # @param names [Array<String>] signals to be queued
    def initialize(names)
      @names = names
      @signals = []
      @previous = {}
      @owner = nil
      @reader, @writer = IO.pipe
    end

    # Starts to take the signals.
    def install
      @owner = Process.pid
      @names.each do |name|
        @previous[name] = trap(name) { push(name) }
      end
    end

    # Gives the signals back to whoever had them before.
    #
    # @param quiet [Array<String>] those that shall do nothing from now on where nobody had them: they would end the
    #   process
    def uninstall(quiet: [])
      @previous.each do |name, handler|
        trap(name, quiet.include?(name) && nobodys?(handler) ? proc {} : handler || "SYSTEM_DEFAULT")
      end
      @previous.clear
    end

    # In a process that is neither master nor worker: it does with the signals what any process does.
    #
    # @param action [String] see Signal.trap
    def disown(action = "DEFAULT")
      @names.each { |name| trap(name, action) }
    end

    # Safe in a signal handler and from any thread.
    def push(name)
      @signals << name
      # A worker has this handler until it has set its own. What comes in that time is for the worker, which looks here.
      wake if Process.pid == @owner
    end

    # @return [String, nil] the next signal
    def shift
      @signals.shift
    end

    # In a process just forked: what has arrived for it since. Call it once it has handlers of its own, or none.
    #
    # @param pending [Integer] how many the queue had before the fork; these are the master's
    def arrived_since_fork(pending)
      @signals.drop(pending)
    end

    def size
      @signals.size
    end

    # Empties the pipe, before the queue is looked at.
    def drain
      @reader.read_nonblock(4096)
    rescue IO::WaitReadable
      nil
    end

    # Closes this process's ends of the pipe.
    def close
      @reader.close
      @writer.close
    end

    private

    # trap gives nil for a handler that Ruby did not set; the system's own is the nearest to it.
    def nobodys?(handler)
      [nil, "DEFAULT", "SYSTEM_DEFAULT"].include?(handler)
    end

    def wake
      @writer.write_nonblock(".")
    rescue IO::WaitWritable, IOError
      # It is full, which wakes as well; or the master has done with it.
      nil
    end
  end
end
