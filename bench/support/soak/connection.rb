# frozen_string_literal: true

require "io/wait"
require "socket"

module Soak
  # A client's connection. It knows how a response that does not come has failed to.
  class Connection
    # Seconds that a response may take to go on: more than anything that is done to the server lasts.
    PATIENCE = 40

    # A response that did not come, or not whole.
    class Lost < StandardError
      # @return [Symbol] :refused, :unanswered (no byte of a response), :cut (some) or :late (not in time)
      attr_reader :kind

      def initialize(kind, text = "")
        super(text)
        @kind = kind
      end
    end

    Response = Struct.new(:status, :head, :body) do
      def last? = head.match?(/^connection: close\r?$/i)
    end

    # @return [Float] monotonic seconds
    attr_reader :opened

    # @param receive_buffer [Integer, nil] bytes that this client's kernel takes ahead of it
    def initialize(endpoint, receive_buffer: nil)
      @opened = Bench.now
      @bytes = +"".b
      @socket = endpoint.connect
      @socket.setsockopt(:SOCKET, :RCVBUF, receive_buffer) if receive_buffer
    rescue SystemCallError => e
      raise Lost.new(:refused, e.class.name)
    end

    # Sends all, unless a response comes before: then the server does not want the rest.
    #
    # @param pause [Float] seconds between pieces
    def write(bytes, piece: [bytes.bytesize, 1].max, pause: 0)
      (0...bytes.bytesize).step(piece) do |from|
        return if !from.zero? && pause.positive? && @socket.wait_readable(pause)
        return unless write_piece(bytes.byteslice(from, piece))
      end
    rescue Errno::EPIPE, Errno::ECONNRESET
      # The response may have come all the same.
      nil
    end

    def finish_sending
      @socket.close_write
    rescue Errno::ENOTCONN
      nil
    end

    # The next response, interim ones left out.
    #
    # @param pause [Float] seconds before each piece is read
    def read(pause: 0)
      @pause = pause
      begin
        head = read_until("\r\n\r\n")
        status = head[%r{\AHTTP/1\.1 (\d{3}) }, 1].to_i
      end while (100..199).cover?(status)
      Response.new(status, head, read_body(head))
    rescue EOFError, SystemCallError => e
      raise Lost.new(@bytes.empty? && head.nil? ? :unanswered : :cut, e.class.name)
    end

    # Resets the connection.
    def abort
      @socket.setsockopt(:SOCKET, :LINGER, [1, 0].pack("ii"))
      close
    end

    def close
      @socket.close
    end

    private

    def write_piece(bytes)
      until bytes.empty?
        readable, writable = IO.select([@socket], [@socket], nil, PATIENCE)
        raise Lost.new(:late, "nothing is taken of a request") unless readable
        return false if readable.any?
        next if writable.empty?

        written = @socket.write_nonblock(bytes, exception: false)
        bytes = bytes.byteslice(written..) if written.is_a?(Integer)
      end
      true
    end

    def read_body(head)
      length = head[/^content-length: (\d+)/i, 1]
      return take(length.to_i) if length
      return read_chunks if head.match?(/^transfer-encoding: chunked/i)

      begin
        loop { read_some }
      rescue EOFError
        take(@bytes.bytesize)
      end
    end

    def read_chunks
      body = +"".b
      loop do
        size = read_until("\r\n").to_i(16)
        body << take(size)
        take(2)
        return body if size.zero?
      end
    end

    def read_until(mark)
      read_some until (at = @bytes.index(mark))
      @bytes.slice!(0, at + mark.bytesize)
    end

    def take(size)
      read_some while @bytes.bytesize < size
      @bytes.slice!(0, size)
    end

    def read_some
      sleep(@pause) if @pause.positive?
      raise Lost.new(:late, "nothing within #{PATIENCE} s after #{@bytes.bytesize} bytes") unless @socket.wait_readable(PATIENCE)

      @bytes << @socket.readpartial(65_536)
    end
  end
end
