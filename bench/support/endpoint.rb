# frozen_string_literal: true

require "socket"

module Bench
  # Where a server listens.
  module Endpoint
    HOST = "127.0.0.1"

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

    # A port that nobody listens on. A socket that is bound keeps it: the kernel gives it to nobody else, and not to a client's connection, but
    # lets a server bind it, as servers set SO_REUSEADDR (socket(7)).
    def self.free_tcp
      socket = Socket.new(:INET, :STREAM)
      socket.bind(Addrinfo.tcp(HOST, 0))
      socket.setsockopt(:SOCKET, :REUSEADDR, true)
      @claims = [*@claims, socket]
      @claims.shift.close while @claims.size > CLAIMS
      Tcp.new(socket.local_address.ip_port)
    end
  end
end
