# frozen_string_literal: true

require "socket"

module Fastrack
  # What the master and one worker say to each other, or the old master and the new one: each word of it a byte, over a
  # pair of connected sockets.
  class ControlChannel
    # From the worker: its hooks have run and its signal handlers are set; it serves from now on.
    READY = "r"
    # From the worker: it has served as many requests as it may, and asks whether it may go. It waits for the answer.
    LIMIT_REACHED = "l"
    # The answers: go, for another has your place; or serve on until you are told to go by a signal.
    GO = "g"
    STAY = "s"
    # From a new master: READY as above, said of all its workers; or that, and the old one is to QUIT.
    READY_AND_QUIT = "q"
    # From the old master: it has waited for too long.
    GIVE_UP = "u"

    # @return [Array(ControlChannel, ControlChannel)] the master's end and the worker's
    def self.pair
      UNIXSocket.pair(:STREAM).map { |socket| new(socket) }
    end

    # Forks off a process that has the second of two channels, where this one has the first. Output that is buffered has to
    # be flushed before, or both would write it.
    #
    # @param pair [Array(ControlChannel, ControlChannel)] this process's and the child's
    # @yieldparam theirs [ControlChannel] in the child, which must not return
    # @return [Array(Integer, ControlChannel)] its pid, and the first
    # @raise [SystemCallError] when there can be no other process; then both are closed
    def self.fork(pair)
      ours, theirs = pair
      pid = Process.fork do
        ours.close
        yield theirs
      end
      [pid, ours]
    rescue StandardError
      ours.close
      raise
    ensure
      theirs.close
    end

    def initialize(socket)
      @socket = socket
    end

    # @return [IO] for IO.select
    def to_io
      @socket
    end

    # The other side may be gone, and this one closed for that; its death is noticed by other means.
    def say(word)
      @socket.write_nonblock(word)
    rescue IO::WaitWritable, SystemCallError, IOError
      nil
    end

    # @return [Array<String>] the words that have arrived; nil when the other side has closed
    def heard
      @socket.read_nonblock(256).chars
    rescue IO::WaitReadable
      []
    rescue EOFError, SystemCallError
      nil
    end

    # Waits for words.
    #
    # @param timeout [Numeric] seconds
    # @return [Array<String>, nil] see #heard; empty when none came in time
    def await(timeout)
      @socket.wait_readable(timeout) ? heard : []
    end

    def closed?
      @socket.closed?
    end

    def close
      @socket.close
    end
  end
end
