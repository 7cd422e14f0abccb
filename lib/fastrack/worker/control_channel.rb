# frozen_string_literal: true

require "socket"
require_relative "../error"
require_relative "../log"
require_relative "../process/guards"

module Fastrack
  # Messages between the master and a worker, or between the old and the new master. Each message is a byte in a socket pair.
  class ControlChannel
    # Master: the handle of the forked process exists, so the process may begin.
    KNOWN = "k"
    # Worker: hooks have run, signal handlers are set, and the worker serves. New master: all of its workers serve.
    READY = "r"
    # Worker: the request limit is reached; may the worker exit? The worker waits for the answer.
    LIMIT_REACHED = "l"
    # Worker: all requests are served, and only hooks are left. A replacement need not wait for hooks.
    ENDING = "e"
    # Worker: it takes more memory than MaxMemoryPerChild, and serves until it is told to stop.
    OUTGROWN = "m"
    # Worker: it takes more memory than MaxMemoryPerChild since its first request. The message comes once.
    TOO_LARGE = "f"
    # Worker: the app forbids reforks.
    FORBID = "n"
    # Worker: whether something in the app, such as a debugger, handles INT.
    INTERRUPT_TAKEN = "t"
    INTERRUPT_LEFT = "i"
    # Answers to LIMIT_REACHED: exit, because a replacement takes over; or serve until a signal comes.
    GO = "g"
    STAY = "s"
    # New master: all of its workers serve, and the old master is to quit.
    READY_AND_QUIT = "q"
    # Master: after its last request the worker is to become the mold instead of exiting.
    PROMOTE = "p"
    # Worker: it is the mold now, and waits for orders.
    MOLD = "o"
    # Old master: the new master took too long to boot.
    TIMED_OUT = "u"

    # Seconds until the next try if the system lacks memory.
    MEMORY_PAUSE = 0.02

    # @param seconds [Float, nil] nil: no limit
    # @return [Array<IO, ControlChannel>] the readable ones; empty if the system lacks memory to tell
    def self.select(readers, seconds)
      IO.select(readers, nil, nil, seconds)&.first || []
    rescue Errno::ENOMEM
      sleep MEMORY_PAUSE
      []
    end

    # @return [Array(ControlChannel, ControlChannel)]
    def self.pair = UNIXSocket.pair(:STREAM).map { |socket| new(socket) }

    # Forks a child, which gets the second channel of a pair; this process keeps the first. The child begins when KNOWN arrives, and exits
    # if the channel ends before. So no child runs without a master.
    #
    # @param pair [Array(ControlChannel, ControlChannel)]
    # @param keep [Array<#close>] other descriptors of the server that the child keeps
    # @param limit [#call] calls its block, which forks, and limits the time
    # @yieldparam theirs [ControlChannel] the child's channel, in the child
    # @yieldreturn [Integer] the child's exit status, see ChildProcess.run
    # @return [Array(Integer, ControlChannel)] the child's pid, and this process's channel
    # @raise [Exception] when no child was forked; then both channels are closed
    def self.fork(pair, keep, limit = ->(&fork) { fork.call })
      ours, theirs = pair
      pid = fork_child(limit) do
        ours.close
        ForkGuard.close_descriptors(keep: [theirs, *keep])
        theirs.await_known
        yield theirs
      end
      [pid, ours]
    rescue Exception # rubocop:disable Lint/RescueException -- it is raised again
      ours.close
      raise
    ensure
      theirs.close
    end

    # Forks this process. An exception of a library's wrapper of Process._fork neither loses the child nor lets it go on as its parent.
    #
    # @yield in the child
    # @yieldreturn [Integer] the child's exit status
    # @return [Integer] the child's pid
    def self.fork_child(limit = ->(&fork) { fork.call }, &work)
      parent = Process.pid
      # Without a flush the child would write buffered output again.
      Log.flush
      Log.while_flushable do |restore|
        limit.call { Process.fork { ChildProcess.run { restore.call.then(&work) } } }
      end
    rescue Exception => e # rubocop:disable Lint/RescueException -- a child is never to go on as its parent
      unless Process.pid == parent
        Log.exception("a child process cannot start", e)
        Process.exit!(1)
      end
      # A wrapper of Process._fork may have raised after the fork.
      raise unless (pid = ForkGuard.forked)

      Log.exception("process #{pid} was forked nevertheless", e)
      pid
    end

    def initialize(socket)
      @socket = socket
    end

    # @return [IO] for IO.select
    def to_io = @socket

    # Ignores errors, because the end of the other process is noticed in other ways.
    def write(message)
      @socket.write_nonblock(message)
    rescue IO::WaitWritable, SystemCallError, IOError
      nil
    end

    # Waits in a child for KNOWN. Signals are only queued so far.
    def await_known
      # By a method that does not read ahead.
      @socket.sysread(KNOWN.bytesize)
    rescue SystemCallError, IOError
      Process.exit!(1)
    end

    # @return [Array<String>, nil] messages that have arrived; nil when the other process has closed its channel
    def read
      @socket.read_nonblock(256).chars
    rescue IO::WaitReadable
      []
    rescue Errno::ENOMEM, Errno::ENOBUFS
      # The other process still runs. The pause keeps IO.select from reporting the channel again at once.
      sleep MEMORY_PAUSE
      []
    rescue EOFError, SystemCallError
      nil
    end

    # Tells the mold to fork a worker.
    #
    # @param text [String] short
    # @param descriptors [Array<IO>] the mold gets copies of these (SCM_RIGHTS, unix(7))
    # @raise [SystemCallError, IOError]
    def order(text, descriptors)
      @socket.sendmsg(text, 0, nil, Socket::AncillaryData.unix_rights(*descriptors))
    end

    # Called in the mold. One order comes at a time.
    #
    # @return [Array(String, Array<IO>), nil] nil when the master has ended or closed the channel
    def take_order
      text, _, _, *control = @socket.recvmsg(64, scm_rights: true)
      [text, control.flat_map { |one| one.unix_rights || [] }] unless text.to_s.empty?
    rescue SystemCallError, IOError
      nil
    end

    # @param pid [Integer] pid of the new worker; 0: none
    def answer(pid) = write("#{pid}\n")

    # @param seconds [Numeric]
    # @return [Integer] see #answer
    # @raise [IOError, SystemCallError, Error] without an answer
    def await_answer(seconds)
      raise Error, "it has not answered within #{seconds} s" unless @socket.wait_readable(seconds)

      @socket.readpartial(64).to_i
    end

    def closed? = @socket.closed?

    def close = @socket.close
  end
end
