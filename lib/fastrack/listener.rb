# frozen_string_literal: true

require "socket"
require_relative "log"
require_relative "process/safe_file"
require_relative "text"

module Fastrack
  # A listening socket, with its names in env and in log lines. The master keeps the socket while the server runs, and workers inherit the
  # socket.
  class Listener
    # @return [String, nil] SERVER_NAME of the requests that arrive here; nil on a unix socket
    attr_reader :server_name
    # @return [String, nil] SERVER_PORT
    attr_reader :server_port
    # @return [:edge, :inner, nil] :edge: the proxy accepts its clients; :inner: its only client is the proxy; nil: workers accept its clients
    attr_accessor :role
    # @param value [Boolean] whether the proxy speaks TLS there
    attr_writer :tls
    # @return [Integer] the socket's inode: equal in all processes that have the socket, and known after the close
    attr_reader :identity

    # @param socket [Socket] already listening
    # @param host [String, nil] SERVER_NAME; nil on a unix socket
    # @param port [Integer, String, nil]
    # @param tcp_nodelay [Boolean, nil] TCP_NODELAY; nil leaves it as it is
    # @param tcp_defer_accept [Integer, nil] TCP_DEFER_ACCEPT, in seconds
    def initialize(socket, host: nil, port: nil, tcp_nodelay: true, tcp_defer_accept: 1)
      @socket = socket
      @tls = false
      @address = socket.local_address
      @identity = socket.stat.ino
      # The bound path as an absolute one, because the working directory may change.
      @path = Text.expand(unix_name) unless tcp? || unix_name.start_with?("\0")
      @file = @path && SafeFile.at(@path) { file_at(@path) }
      @socket.close_on_exec = true
      return unless tcp?

      @server_name = self.class.authority(host || @address.ip_address).freeze
      @server_port = (port || @address.ip_port).to_s.freeze
      set_tcp_options(tcp_nodelay, tcp_defer_accept)
    end

    # A host in the form of URLs and SERVER_NAME: an IPv6 address in brackets (RFC 3875, 4.1.14; RFC 3986, 3.2.2).
    def self.authority(host) = host.include?(":") && !host.start_with?("[") ? "[#{host}]" : host.dup

    def tcp? = !@address.unix?

    # @return [Integer] the file descriptor
    def fileno = @socket.fileno

    # @return [String, nil] absolute path; nil for TCP and for an abstract unix socket
    def unix_path = @path

    # @return [Integer, nil] most connections that the kernel lets wait; nil where the kernel does not tell, as for unix sockets. For a
    #   listening socket TCP_INFO has this number in tcpi_sacked, at offset 28 (linux/tcp.h, `tcp_get_info`).
    def backlog_limit = (@socket.getsockopt(:TCP, :INFO).data.unpack1("@28L") if tcp? && Socket.const_defined?(:TCP_INFO))

    # @return [String] the address in the listening line
    def to_s = tcp? ? "#{server_name}:#{server_port}" : ":unix:#{unix_name}"

    # @return [String] URL for a developer to open
    def url = tcp? ? "#{@tls ? "https" : "http"}://#{self}" : "unix://#{@path || unix_name}"

    # Gives a closed listener another descriptor of the same socket.
    #
    # @param socket [Socket]
    def renew(socket)
      @socket = socket
    end

    # Lets #close close a descriptor that was inherited (Socket.for_fd with autoclose off).
    def own
      @socket.autoclose = true
      self
    end

    def close = @socket.close

    # @return [Boolean]
    def closed? = @socket.closed?

    # Closes a listener that is no longer configured.
    def drop
      Log.line("no longer listening on #{self}")
      close
    end

    # Removes a unix socket's file if nobody listens there. After USR2 the new master listens there, and another server may have bound the
    # same path. Call this after #close.
    def remove_file
      return unless @file

      SafeFile.at(@path) do
        UNIXListener.alone_in(File.dirname(@path)) { File.unlink(@path) if file_at(@path) == @file && !UNIXListener.in_use?(@path) }
      end
    rescue SystemCallError
      # The file is gone, or this process may not remove it.
      nil
    end

    private

    def unix_name = Text.utf8(@address.unix_path)

    # Identity of a file. The time of the last change is a part, because inodes are used again.
    def file_at(path)
      stat = File.lstat(path)
      [stat.dev, stat.ino, stat.mtime] if stat.socket?
    rescue SystemCallError
      nil
    end

    def set_tcp_options(nodelay, defer_accept)
      # On Linux accepted sockets inherit TCP_NODELAY (tcp(7)), which saves a system call for each connection.
      @socket.setsockopt(:TCP, :NODELAY, nodelay) unless nodelay.nil?
      # The kernel wakes a worker when a request arrives, not when a client connects. Linux only.
      @socket.setsockopt(:TCP, :DEFER_ACCEPT, defer_accept) if defer_accept && Socket.const_defined?(:TCP_DEFER_ACCEPT)
    end
  end
end
