# frozen_string_literal: true

require "socket"
require_relative "../error"
require_relative "../log"
require_relative "../process/guards"

module Fastrack
  # Messages between the master and a worker, or between the old and the new master: one byte each, over a socket pair.
  class ControlChannel
    # Master: it knows the process that it has forked, which may begin.
    KNOWN = "k"
    # Worker: hooks have run and signal handlers are set; it serves now. New master: all of its workers serve.
    READY = "r"
    # Worker: it has reached its request limit, and asks whether it may exit. It waits for the answer.
    LIMIT_REACHED = "l"
    # Worker: it has served, and only its hooks are left. A replacement need not wait for those.
    ENDING = "e"
    # Worker: it takes more memory than MaxMemoryPerChild, and serves on until it is told to stop.
    OUTGROWN = "m"
    # Worker: it does so since its first request, and will not say so again.
    TOO_LARGE = "f"
    # Worker: the app forbids to fork from workers.
    FORBID = "n"
    # Worker: whether something in the app, such as a debugger, handles INT.
    INTERRUPT_TAKEN = "t"
    INTERRUPT_LEFT = "i"
    # The answers to LIMIT_REACHED: exit, a replacement takes over; or keep serving until a signal comes.
    GO = "g"
    STAY = "s"
    # New master: READY, and the old master is to quit.
    READY_AND_QUIT = "q"
    # Master: after its last request the worker does not exit, but becomes the mold.
    PROMOTE = "p"
    # Worker: it is the mold, and waits for orders.
    MOLD = "o"
    # Old master: the new master took too long to boot.
    TIMED_OUT = "u"

    # Seconds until the next try where the system lacks memory.
    PAUSE = 0.02

    # @param seconds [Float, nil] nil: no limit
    # @return [Array<IO, ControlChannel>] what is readable; nothing where the system lacks memory to tell
    def self.select(readers, seconds)
      IO.select(readers, nil, nil, seconds)&.first || []
    rescue Errno::ENOMEM
      sleep PAUSE
      []
    end

    # @return [Array(ControlChannel, ControlChannel)]
    def self.pair = UNIXSocket.pair(:STREAM).map { |socket| new(socket) }

    # Forks a child that has the second channel of a pair; this process keeps the first. The child begins when KNOWN comes there, and
    # ends when that channel ends before: it is never on its own.
    #
    # @param pair [Array(ControlChannel, ControlChannel)]
    # @param keep [Array<#close>] what else of the server's descriptors the child keeps
    # @param limit [#call] calls its block, which forks, and limits how long that takes
    # @yieldparam theirs [ControlChannel] in the child
    # @yieldreturn [Integer] the child's exit status, see ChildProcess.run
    # @return [Array(Integer, ControlChannel)] its pid, and this end
    # @raise [Exception] when there is no child, as where the process cannot fork; then both ends are closed
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

    # Forks this process, and nothing of the app's raises in between.
    #
    # @yield in the child
    # @yieldreturn [Integer] its exit status
    # @return [Integer] its pid
    def self.fork_child(limit = ->(&fork) { fork.call }, &work)
      parent = Process.pid
      # Or the child would write buffered output again.
      Log.flush
      Log.while_flushable do |restore|
        limit.call { Process.fork { ChildProcess.run { restore.call.then(&work) } } }
      end
    rescue Exception => e # rubocop:disable Lint/RescueException -- a child is never to go on as its parent
      unless Process.pid == parent
        Log.exception("a child process cannot start", e)
        Process.exit!(1)
      end
      # A wrapper of Process._fork may have raised when there was a child.
      raise unless (pid = ForkGuard.forked)

      Log.exception("process #{pid} was forked all the same", e)
      pid
    end

    def initialize(socket)
      @socket = socket
    end

    # @return [IO] for IO.select
    def to_io = @socket

    # Errors are ignored: if the other side is gone, its death is noticed in other ways.
    def write(message)
      @socket.write_nonblock(message)
    rescue IO::WaitWritable, SystemCallError, IOError
      nil
    end

    # In a child. Signals are only queued so far.
    def await_known
      # Not by a method that reads ahead.
      @socket.sysread(KNOWN.bytesize)
    rescue SystemCallError, IOError
      Process.exit!(1)
    end

    # @return [Array<String>, nil] the messages that have arrived; nil when the other side has closed
    def read
      @socket.read_nonblock(256).chars
    rescue IO::WaitReadable
      []
    rescue Errno::ENOMEM, Errno::ENOBUFS
      # The other side is there all the same, and IO.select would report the channel again at once.
      sleep PAUSE
      []
    rescue EOFError, SystemCallError
      nil
    end

    # Tells the mold to fork a worker.
    #
    # @param text [String] short
    # @param descriptors [Array<IO>] copies of which it gets (SCM_RIGHTS, unix(7))
    # @raise [SystemCallError, IOError]
    def order(text, descriptors)
      @socket.sendmsg(text, 0, nil, Socket::AncillaryData.unix_rights(*descriptors))
    end

    # In the mold. There is one order at a time.
    #
    # @return [Array(String, Array<IO>), nil] nil when the master is gone, or lets go of the mold
    def take_order
      text, _, _, *control = @socket.recvmsg(64, scm_rights: true)
      [text, control.flat_map { |one| one.unix_rights || [] }] unless text.to_s.empty?
    rescue SystemCallError, IOError
      nil
    end

    # @param pid [Integer] 0: there is none
    def answer(pid) = write("#{pid}\n")

    # @param seconds [Numeric]
    # @return [Integer] see #answer
    # @raise [IOError, SystemCallError, Error] when there is none
    def await_answer(seconds)
      raise Error, "it has not answered within #{seconds} s" unless @socket.wait_readable(seconds)

      @socket.readpartial(64).to_i
    end

    def closed? = @socket.closed?

    def close = @socket.close
  end
end
