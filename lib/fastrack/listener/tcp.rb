# frozen_string_literal: true

require "socket"
require_relative "../error"
require_relative "../listener"

module Fastrack
  # Opens the listeners for a host and port.
  class TCPListener
    # Plain words for the common errors of bind(2) and listen(2).
    REASONS = {
      Errno::EADDRINUSE => "the port is in use",
      Errno::EACCES => "not permitted for this user",
      Errno::EADDRNOTAVAIL => "no such address on this machine",
      Errno::EAFNOSUPPORT => "addresses of this family are not available on this machine"
    }.freeze

    # Listens on all addresses of the host: `localhost` is 127.0.0.1 and ::1, and clients may try either first.
    #
    # @param port [Integer] 0: any free port
    # @param backlog [Integer] connections
    # @param reuseport [Boolean] SO_REUSEPORT (socket(7)): other servers of this user may listen there too
    # @param ipv6only [Boolean, nil] IPV6_V6ONLY (ipv6(7)); nil: the system's default
    # @param rcvbuf [Integer, nil] SO_RCVBUF in bytes (socket(7)), which connections inherit; sndbuf likewise
    # @param tuning see Listener
    # @return [Array<Listener>] at least one
    # @raise [AddressInUseError, ListenError]
    def self.open(host, port, backlog:, reuseport: false, ipv6only: nil, rcvbuf: nil, sndbuf: nil, **tuning)
      options = { [:SOCKET, :REUSEPORT] => reuseport || nil, [:IPV6, :V6ONLY] => ipv6only, [:SOCKET, :RCVBUF] => rcvbuf,
                  [:SOCKET, :SNDBUF] => sndbuf }
      new(host, port, backlog, options.compact, tuning).open
    end

    def initialize(host, port, backlog, options, tuning)
      # The resolver wants "::1" for the "[::1]" of a URL.
      @host = host.delete_prefix("[").delete_suffix("]")
      @port = port
      @backlog = backlog
      @options = options
      @tuning = tuning
    end

    def open
      sockets = []
      unavailable = nil
      resolve.each do |address|
        sockets << listen(address)
        # With port 0 the kernel chooses one for the first address, and the others use the same.
        @port = sockets.first.local_address.ip_port
      rescue Errno::EADDRNOTAVAIL, Errno::EAFNOSUPPORT => e
        # Names may have IPv6 addresses where IPv6 is switched off. One address that works is enough.
        unavailable = e
      end
      raise unavailable if sockets.empty?

      sockets.map { |socket| Listener.new(socket, host: @host, port: @port, **@tuning) }
    rescue SystemCallError => e
      sockets.each(&:close)
      raise failure(REASONS.fetch(e.class, e.message), e.is_a?(Errno::EADDRINUSE) ? AddressInUseError : ListenError)
    end

    private

    def failure(reason, type = ListenError)
      type.new("cannot listen on #{Listener.authority(@host)}:#{@port}: #{reason}")
    end

    def resolve
      Addrinfo.getaddrinfo(@host, nil, nil, :STREAM, nil, Socket::AI_PASSIVE).uniq(&:ip_address)
    rescue SocketError => e
      raise failure("the host is unknown (#{e.message})")
    end

    def listen(address)
      socket = Socket.new(address.afamily, Socket::SOCK_STREAM, 0)
      # A restarted server must be able to listen while old connections are in TIME_WAIT.
      socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_REUSEADDR, 1)
      @options.each { |(level, name), value| socket.setsockopt(level, name, value) if level != :IPV6 || address.ipv6? }
      socket.bind(Addrinfo.tcp(address.ip_address, @port))
      socket.listen(@backlog)
      socket
    rescue SystemCallError
      socket&.close
      raise
    end
  end
end
