# frozen_string_literal: true

require "socket"
require_relative "log"
require_relative "process/safe_file"

module Fastrack
  # A listening socket, and the names that apps and log lines have for it. The master keeps it for as long as the server
  # runs, and workers inherit it.
  class Listener
    # @return [String, nil] SERVER_NAME of the requests that arrive here; nil on a unix socket
    attr_reader :server_name
    # @return [String, nil] SERVER_PORT
    attr_reader :server_port
    # @return [Integer] the socket's inode: the same in every process that has the socket, and known after it is closed
    attr_reader :identity

    # @param socket [Socket] already listening
    # @param host [String, nil] SERVER_NAME; nil on a unix socket
    # @param port [Integer, String, nil]
    # @param tcp_nodelay [Boolean, nil] TCP_NODELAY; nil leaves it as it is
    # @param tcp_defer_accept [Integer, nil] TCP_DEFER_ACCEPT, in seconds
    def initialize(socket, host: nil, port: nil, tcp_nodelay: true, tcp_defer_accept: 1)
      @socket = socket
      @address = socket.local_address
      @identity = socket.stat.ino
      # As bound: the working directory may change.
      @path = File.expand_path(@address.unix_path) unless tcp? || @address.unix_path.start_with?("\0")
      @file = @path && SafeFile.at(@path) { file_at(@path) }
      @socket.close_on_exec = true
      return unless tcp?

      @server_name = self.class.authority(host || @address.ip_address).freeze
      @server_port = (port || @address.ip_port).to_s.freeze
      set_tcp_options(tcp_nodelay, tcp_defer_accept)
    end

    # A host as URLs and SERVER_NAME have it: an IPv6 address in brackets (RFC 3875, 4.1.14; RFC 3986, 3.2.2).
    def self.authority(host) = host.include?(":") && !host.start_with?("[") ? "[#{host}]" : host.dup

    def tcp? = !@address.unix?

    # @return [Integer] the file descriptor
    def fileno = @socket.fileno

    # @return [String, nil] the absolute path of a unix socket that has one
    def unix_path = @path

    # @return [Integer, nil] how many connections the kernel lets wait here; nil where it does not tell, as of unix sockets. For a
    #   listening socket TCP_INFO has that in tcpi_sacked, at offset 28 (linux/tcp.h, `tcp_get_info`).
    def backlog_limit = (@socket.getsockopt(:TCP, :INFO).data.unpack1("@28L") if tcp? && Socket.const_defined?(:TCP_INFO))

    # @return [String] the address in the listening line
    def to_s = tcp? ? "#{server_name}:#{server_port}" : ":unix:#{@address.unix_path}"

    # @return [String] what a developer opens
    def url = tcp? ? "http://#{self}" : "unix://#{@path || @address.unix_path}"

    # Gives it another descriptor of its socket, where it was closed.
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

    # It is no longer configured.
    def give_up
      Log.line("no longer listening on #{self}")
      close
    end

    # Removes a unix socket's file if nobody listens there any more: after USR2 the new master does, and another server may
    # have made a socket of its own there. To be called when it is closed.
    def remove_file
      return unless @file

      SafeFile.at(@path) do
        UNIXListener.alone_in(File.dirname(@path)) { File.unlink(@path) if file_at(@path) == @file && !UNIXListener.in_use?(@path) }
      end
    rescue SystemCallError
      # It is already gone, or we may not remove it.
      nil
    end

    private

    # What tells a file from any other that may get its name: inodes are used again.
    def file_at(path)
      stat = File.lstat(path)
      [stat.dev, stat.ino, stat.mtime] if stat.socket?
    rescue SystemCallError
      nil
    end

    def set_tcp_options(nodelay, defer_accept)
      # On Linux accepted sockets inherit it (tcp(7)), which saves a system call for each connection.
      @socket.setsockopt(:TCP, :NODELAY, nodelay) unless nodelay.nil?
      # Wakes us up when a request arrives, not when a client connects. Linux only.
      @socket.setsockopt(:TCP, :DEFER_ACCEPT, defer_accept) if defer_accept && Socket.const_defined?(:TCP_DEFER_ACCEPT)
    end
  end
end
