# frozen_string_literal: true

require "socket"
require_relative "../error"
require_relative "../log"
require_relative "../process/safe_file"
require_relative "../text"
require_relative "../listener"

module Fastrack
  # Opens the listeners for a host and port.
  class TCPListener
    # Plain words for the common errors of bind(2) and listen(2).
    REASONS = {
      Errno::EADDRINUSE => "the port is in use",
      Errno::EACCES => "not permitted for this user; a port below 1024 takes root, or the capability CAP_NET_BIND_SERVICE",
      Errno::EADDRNOTAVAIL => "no such address on this machine",
      Errno::EAFNOSUPPORT => "addresses of this family are not available on this machine"
    }.freeze

    # Listens on all addresses of the host: `localhost` is 127.0.0.1 and ::1, and a client may try either first.
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
      # The resolver takes "::1", and not the "[::1]" of a URL.
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
        # With port 0 the kernel chooses a port for the first address, and the other addresses use the same port.
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

  # Opens the listener for a path.
  module UNIXListener
    # Everyone may connect: the web server in front often runs as another user. Protect the directory to restrict access.
    MODE = 0o777

    module_function

    # @param backlog [Integer] connections
    # @param mode [Integer] of the socket file
    # @param output [IO, Log::Output] where the removal of a stale socket is announced
    # @return [Listener]
    # @raise [AddressInUseError, ListenError]
    def open(path, backlog:, mode: MODE, output: Log::STDOUT)
      SafeFile.at(path) do
        alone_in(File.dirname(path)) do
          remove_stale(path, output)
          Listener.new(listen(path, backlog, mode))
        end
      end
    rescue SystemCallError => e
      raise ListenError, "cannot listen on #{path}: #{SafeFile.reason(e)}"
    rescue ArgumentError
      # sun_path has a fixed size (unix(7)), which Ruby checks before it asks the kernel.
      raise ListenError, "cannot listen on #{path}: the path is too long for a unix socket"
    end

    # Locks the folder, so that two starts do not remove each other's new socket. Waits for a second at most, because the lock may be
    # another program's.
    def alone_in(directory)
      folder = File.open(directory, File::RDONLY | File::NONBLOCK) if File.readable?(directory)
      100.times { folder.nil? || folder.flock(File::LOCK_EX | File::LOCK_NB) ? break : sleep(0.01) }
      yield
    ensure
      folder&.close
    end

    # Removes only a socket. Another kind of file means that the path is wrong.
    #
    def remove_stale(path, output)
      return unless File.exist?(path) || File.symlink?(path)
      raise ListenError, "cannot listen on #{path}: it exists and is not a socket" unless File.socket?(path)
      raise AddressInUseError, "cannot listen on #{path}: the path is in use" if in_use?(path)

      output.puts "removing existing socket file:#{path}"
      output.flush
      File.unlink(path)
    rescue Errno::ENOENT
      # A server that is shutting down has just removed the file.
      nil
    end

    # The kernel refuses connections to a socket that no process has open (unix(7)).
    def in_use?(path)
      probe = Socket.new(Socket::AF_UNIX, Socket::SOCK_STREAM, 0)
      probe.connect_nonblock(Addrinfo.unix(path))
      true
    rescue Errno::EAGAIN, Errno::EPROTOTYPE
      # The backlog is full, or the socket has another type.
      true
    rescue Errno::ECONNREFUSED
      bound?(path)
    rescue Errno::ENOENT
      false
    ensure
      probe&.close
    end

    # Whether a process has bound the path and does not listen yet. A relative path in proc(5) starts in a directory unknown here.
    def bound?(path)
      File.foreach("/proc/net/unix", mode: "rb").any? do |line|
        *_, flags, type, state, _, given = line.chomp.split(" ", 8)
        [flags, type, state] == %w[00000000 0001 01] && given &&
          (given.start_with?("/") ? given == Text.expand(path).b : File.basename(given) == File.basename(path).b)
      end
    rescue SystemCallError
      false
    end

    def listen(path, backlog, mode)
      socket = Socket.new(Socket::AF_UNIX, Socket::SOCK_STREAM, 0)
      SafeFile.bind(socket, path, mode)
      socket.listen(backlog)
      socket
    rescue SystemCallError
      socket&.close
      raise
    end
    private_class_method :remove_stale, :bound?, :listen
  end
end
