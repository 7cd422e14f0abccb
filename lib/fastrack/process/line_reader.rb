# frozen_string_literal: true

require_relative "../text"

module Fastrack
  # Reads the lines that another process writes to a socket or a pipe. The other process may be the app's: whatever it writes takes no more
  # than two PIECEs of memory here, one read a turn, and no line of its reaches the log with a control character.
  class LineReader
    # Most bytes of a read, and of a line. PIPE_BUF of Linux (pipe(7)): the kernel accepts such a line entirely or not at all.
    PIECE = 4096

    # Stands for a line that was longer.
    TOO_LONG = :too_long

    # @param io [IO] of which only this object reads
    def initialize(io)
      @io = io
      @rest = +"".b
      @skips = false
    end

    # Reads once, without waiting. A further call may find more.
    #
    # @return [Array<String, Symbol>, nil] the lines that are complete (Text.printable), or TOO_LONG; nil at the end of the stream
    # @raise [Errno::ENOMEM, Errno::ENOBUFS] when the system lacks memory
    def read
      lines(@io.read_nonblock(PIECE))
    rescue IO::WaitReadable, Errno::EINTR
      []
    rescue Errno::ENOMEM, Errno::ENOBUFS
      raise
    rescue EOFError, IOError, SystemCallError
      nil
    end

    # @param piece [String] bytes that have been read
    # @return [Array<String, Symbol>] as #read
    def lines(piece)
      *whole, @rest = "#{@rest}#{piece.b}".split("\n", -1)
      found = whole.filter_map { |line| end_line(line) }
      return found if @rest.bytesize < PIECE

      @rest = +"".b
      found << TOO_LONG unless @skips
      @skips = true
      found
    end

    private

    # @return [String, Symbol, nil] nil for the rest of a line that was too long
    def end_line(line)
      return @skips = nil if @skips

      line.bytesize < PIECE ? Text.printable(line) : TOO_LONG
    end
  end
end
