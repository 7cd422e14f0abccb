# frozen_string_literal: true

module Fastrack
  # The master's signals. A handler only queues the signal and wakes the master, because little else is safe in a handler (signal-safety(7);
  # Ruby allows no locks).
  class SignalQueue
    # @return [IO] readable when the queue has a signal
    attr_reader :reader

    # @return [#call] tells whether a signal or another order is to end the server
    attr_writer :ends

    # @param names [Array<String>] signals to queue
    def initialize(names)
      @names = names
      @signals = []
      @previous = {}
      @owner = nil
      @ends = ->(_name) { false }
      @reader, @writer = IO.pipe
    end

    # Sets the handlers.
    def install
      @owner = Process.pid
      @names.each do |name|
        @previous[name] = trap(name) { push(name) }
      end
    end

    # @return [Boolean] whether the server was started with the signal ignored, as nohup(1) does it
    def ignored_before?(name) = @previous[name] == "IGNORE"

    # Restores the previous handlers.
    #
    # @param quiet [Array<String>] signals to ignore if they had no handler, because their default would end the process
    # @param once [Array<String>] signals to ignore in the same way, but only the first time
    def uninstall(quiet: [], once: [])
      @previous.each do |name, handler|
        before = handler || "SYSTEM_DEFAULT"
        ignored = { quiet => -> {}, once => -> { trap(name, before) } }.find { |names, _| names.include?(name) }
        trap(name, ignored && default?(handler) ? proc { ignored.last.call } : before)
      end
      @previous.clear
    end

    # Resets all signals to their default, in a process that is neither master nor worker.
    #
    # @param action [String] see Signal.trap
    def reset(action = "DEFAULT") = @names.each { |name| trap(name, action) }

    # Called in a process before exec(2) replaces Ruby and its handlers. Signals since the fork are sent again: the server may be told to
    # stop right after USR2.
    #
    # @param pending [Integer] see #arrived_since_fork
    def leave_to_program(pending)
      reset("SYSTEM_DEFAULT")
      (arrived_since_fork(pending) & %w[TERM INT]).each { |name| Process.kill(name, Process.pid) }
    end

    # Safe in a signal handler and from any thread.
    def push(name)
      @signals << name
      # A new worker has this handler until it sets its own handlers. The worker then looks for its signals in the queue.
      wake if Process.pid == @owner
    end

    # @return [String, nil] a signal or another order in the queue that is to end the server
    def ending_order = @signals.find(&@ends)

    # @return [String, nil] the next signal
    def shift = @signals.shift

    # Signals of a forked process since the fork. Called there once the process's own handlers are set.
    #
    # @param pending [Integer] size of the queue before the fork; the master handles these signals
    def arrived_since_fork(pending) = @signals.drop(pending)

    def size = @signals.size

    # Empties the pipe. Call this before #shift.
    def clear_wakeups
      @reader.read_nonblock(4096)
    rescue IO::WaitReadable
      nil
    end

    # Closes the pipe in this process.
    def close
      @reader.close
      @writer.close
    end

    private

    # trap returns nil for a handler that was not set by Ruby. The system's default is closest to it.
    def default?(handler) = [nil, "DEFAULT", "SYSTEM_DEFAULT"].include?(handler)

    def wake
      @writer.write_nonblock(".")
    rescue IO::WaitWritable, IOError
      # The pipe is closed; or it is full, and the master wakes up anyway.
      nil
    end
  end
end
