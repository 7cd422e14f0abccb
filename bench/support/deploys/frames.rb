# frozen_string_literal: true

require "socket"

module Deploys
  # Stands between clients of HTTP/2 and the server, and reads the frames (RFC 9113 §4.1). h2load counts a request as lost that it has not
  # sent, because GOAWAY came first; here only a request counts that was sent.
  class Frames
    DATA, HEADERS, GOAWAY = 0, 1, 7
    END_STREAM = 1
    PREFACE = 24

    # One connection: streams that the client has begun, those that the server has ended, whether GOAWAY has come, and who has ended the
    # connection.
    Seen = Struct.new(:begun, :ended, :goaway, :ended_by) do
      # A client that ends in the middle loses its own requests.
      def lost = goaway && ended_by == :server ? (begun - ended).size : 0
    end

    # @return [Integer] for the clients
    attr_reader :port

    # @param server [Integer] its port
    def initialize(server)
      @server = server
      @seen = []
      @listener = TCPServer.new("127.0.0.1", 0)
      @port = @listener.addr[1]
      Thread.new { loop { pass(@listener.accept) } }
    end

    # @return [Integer] requests that clients have sent, and got no response to, on connections that the server has ended
    def lost = @seen.sum(&:lost)

    private

    def pass(client)
      server = TCPSocket.new("127.0.0.1", @server)
      @seen << (seen = Seen.new([], [], false, nil))
      Thread.new { copy(client, server, PREFACE) { |type, _, stream| seen.begun << stream if type == HEADERS } && seen.ended_by ||= :client }
      Thread.new { copy(server, client, 0) { |*frame| note(seen, *frame) } && seen.ended_by ||= :server }
    end

    def note(seen, type, flags, stream)
      seen.ended << stream if [DATA, HEADERS].include?(type) && (flags & END_STREAM).positive?
      seen.goaway ||= type == GOAWAY
    end

    # @param skipped [Integer] bytes that are no frame
    def copy(from, to, skipped, &block)
      buffer = +"".b
      loop do
        bytes = from.readpartial(65_536)
        buffer << bytes
        skipped -= buffer.slice!(0, skipped).bytesize
        each_frame(buffer, &block) if skipped.zero?
        to.write(bytes)
      end
    rescue EOFError, SystemCallError, IOError
      to.close_write unless to.closed?
      true
    end

    def each_frame(buffer)
      while buffer.bytesize >= 9
        length, type, flags, stream = "\0#{buffer[0, 9]}".b.unpack("NCCN")
        return if buffer.bytesize < 9 + length

        buffer.slice!(0, 9 + length)
        yield type, flags, stream
      end
    end
  end
end
