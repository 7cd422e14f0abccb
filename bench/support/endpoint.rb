# frozen_string_literal: true

require "socket"

module Bench
  # Where a server listens.
  module Endpoint
    HOST = "127.0.0.1"
    # Below the kernel's range for outgoing connections, so that no client's port is in the way.
    PORTS = (22_000..22_999)

    # A port of the loopback interface.
    Tcp = Struct.new(:port) do
      def connect = Socket.tcp(HOST, port)
      def to_s = "#{HOST}:#{port}"
      def nginx = to_s
      def puma = "tcp://#{self}"
    end

    # A unix stream socket. Its path may have 107 bytes, see unix(7).
    Unix = Struct.new(:path) do
      def connect = UNIXSocket.new(path)
      def to_s = path
      def nginx = "unix:#{path}"
      def puma = "unix://#{path}"
    end

    # A port that nobody listens on. No port comes twice in a row: connections of the server before
    # may still be in TIME_WAIT on it.
    #
    # @return [Tcp]
    def self.free_tcp
      @ports ||= PORTS.to_a.rotate(Process.pid % PORTS.size).cycle(2)
      loop do
        port = @ports.next
        TCPServer.new(HOST, port).close
        return Tcp.new(port)
      rescue Errno::EADDRINUSE
        next
      end
      raise "no free port in #{PORTS}"
    end
  end
end
