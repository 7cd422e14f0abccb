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

    # As many claims as no measurement has endpoints.
    CLAIMS = 64
    private_constant :CLAIMS

    # A port that nobody listens on, and that no other run takes for free until its server listens. No port comes twice in
    # a row: connections of the server before may still be in TIME_WAIT on it.
    #
    # @return [Tcp]
    def self.free_tcp
      @ports ||= PORTS.to_a.rotate(Process.pid % PORTS.size).cycle(2)
      loop do
        port = @ports.next
        claim(port)
        return Tcp.new(port)
      rescue Errno::EADDRINUSE
        next
      end
      raise "no free port in #{PORTS}"
    end

    # A socket that is bound keeps a port from whoever binds one without SO_REUSEADDR, as this does, and not from servers,
    # which set it (socket(7)). For those it is set here, too, and afterwards.
    #
    # @raise [Errno::EADDRINUSE]
    def self.claim(port)
      socket = Socket.new(:INET, :STREAM)
      socket.bind(Addrinfo.tcp(HOST, port))
      socket.setsockopt(:SOCKET, :REUSEADDR, true)
      @claims = [*@claims, socket]
      @claims.shift.close while @claims.size > CLAIMS
    rescue SystemCallError
      socket.close
      raise
    end
    private_class_method :claim
  end
end
