# frozen_string_literal: true

require "socket"

module Deploys
  # Clients with event streams, and ones with sockets that the app has taken over, which end when their server is replaced.
  class Lasting
    # @param port [Integer]
    # @param streams [Integer]
    # @param sockets [Integer]
    # @param streams_at [String] path of the streams, which begin with `data: first`
    # @param sockets_at [String] path of the sockets, which send each line back
    def initialize(port, streams, sockets, streams_at: "/events", sockets_at: "/socket")
      @streams = Array.new(streams) { open(port, "GET #{streams_at} HTTP/1.1\r\nHost: a\r\n\r\n", "data: first\n\n\r\n") }
      @sockets = Array.new(sockets) { open(port, "GET #{sockets_at} HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n", "\r\n\r\n") }
      @sockets.each { |socket| socket.write("there\n") && expect(socket.gets) }
    end

    # Waits for the end of each client.
    #
    # @return [Array(Integer, Integer, Float, Float)] how many have ended in order and otherwise, and seconds until the first and the last end
    def await_ends
      since = now
      ends = [*@streams.map { |one| Thread.new { [ended_in_order?(one, "0\r\n\r\n"), now - since] } },
              *@sockets.map { |one| Thread.new { [ended_in_order?(one, ""), now - since] } }].map(&:value)
      in_order = ends.count(&:first)
      [in_order, ends.size - in_order, *ends.map(&:last).minmax]
    end

    private

    def open(port, request, first)
      socket = TCPSocket.new("127.0.0.1", port)
      socket.write(request)
      text = +""
      text << socket.readpartial(4096) until text.end_with?(first)
      socket
    end

    def expect(line) = line.end_with?("there\n") || raise("a socket says #{line.inspect}")

    # Whether the client has got these bytes as the last ones of its response, or of its connection, and no reset.
    def ended_in_order?(socket, last)
      text = +""
      text << socket.readpartial(4096) until !last.empty? && text.end_with?(last)
      true
    rescue EOFError
      text.end_with?(last)
    rescue SystemCallError
      false
    ensure
      socket.close
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
