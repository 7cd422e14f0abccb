# frozen_string_literal: true

require "socket"
require_relative "error"

module Fastrack
  # A socket that connections arrive on, with what apps and log lines call it. It belongs to the master for as long as
  # the server runs; workers inherit it.
  class Listener
    # @return [String] SERVER_NAME for the requests that arrive here
    attr_reader :server_name
    # @return [String] SERVER_PORT
    attr_reader :server_port
    # @return [Integer] what it is known by in all processes that have it, and when it is closed: the socket's inode
    attr_reader :identity

    # @param socket [Socket] listening already
    # @param host [String, nil] what SERVER_NAME shall be; nil on a unix socket
    # @param port [Integer, String, nil]
    # @param tcp_nodelay [Boolean, nil] whether responses leave at once; nil leaves it as it is
    # @param tcp_defer_accept [Integer, nil] seconds that the kernel keeps a connection to itself until its request is there
    def initialize(socket, host: nil, port: nil, tcp_nodelay: true, tcp_defer_accept: 1)
      @socket = socket
      @address = socket.local_address
      @identity = socket.stat.ino
      @server_name = self.class.authority(tcp? ? host || @address.ip_address : "0.0.0.0").freeze
      @server_port = (tcp? ? port || @address.ip_port : 0).to_s.freeze
      @socket.close_on_exec = true
      prepare_tcp(tcp_nodelay, tcp_defer_accept) if tcp?
    end

    # A host as it stands in a URL and in SERVER_NAME: an IPv6 address in brackets (RFC 3875, 4.1.14; RFC 3986, 3.2.2).
    def self.authority(host)
      host.include?(":") && !host.start_with?("[") ? "[#{host}]" : host.dup
    end

    def tcp?
      !@address.unix?
    end

    # @return [Integer] its file descriptor
    def fileno
      @socket.fileno
    end

    # @return [String, nil] the absolute path of a unix socket; nil on a port
    def unix_path
      File.expand_path(@address.unix_path) unless tcp?
    end

    # @return [String] the address as the listening line shows it
    def to_s
      tcp? ? "#{server_name}:#{server_port}" : ":unix:#{@address.unix_path}"
    end

    # Has #close close the descriptor too, where it was somebody else's (a Socket made by for_fd, with autoclose off).
    def own
      @socket.autoclose = true
      self
    end

    def close
      @socket.close
    end

    private

    # Set here for all connections to come: on Linux an accepted socket has its listener's TCP_NODELAY (tcp(7)), which
    # saves a system call for each request.
    def prepare_tcp(nodelay, defer_accept)
      @socket.setsockopt(:TCP, :NODELAY, nodelay) unless nodelay.nil?
      # Wakes us when a request arrives rather than when a client connects. Linux only.
      @socket.setsockopt(:TCP, :DEFER_ACCEPT, defer_accept) if defer_accept && Socket.const_defined?(:TCP_DEFER_ACCEPT)
    end
  end
end
