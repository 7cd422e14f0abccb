# frozen_string_literal: true

require "socket"
require_relative "../error"
require_relative "."
require_relative "../log"

module Fastrack
  # Makes the listener for a path in the file system.
  module UNIXListener
    # Whoever can reach the folder may connect: the web server in front runs as another user.
    MODE = 0o777

    module_function

    # @param backlog [Integer] connections
    # @param mode [Integer] of the file
    # @param output [IO, Log::Output] where the removal of a socket that an earlier server left is announced
    # @return [Listener]
    # @raise [AddressInUseError, ListenError]
    def open(path, backlog:, mode: MODE, output: Log::STDOUT)
      remove_stale(path, output)
      Listener.new(listen(path, backlog, mode))
    rescue SystemCallError => e
      raise ListenError, "cannot listen on #{path}: #{SystemCallError.new(nil, e.errno).message.downcase}"
    rescue ArgumentError
      # sun_path is a fixed array (unix(7)), and Ruby checks before it asks the kernel.
      raise ListenError, "cannot listen on #{path}: the path is too long for a unix socket"
    end

    # Anything but a socket at the path is somebody's file, put there by a slip of the one who chose the path.
    def remove_stale(path, output)
      return unless File.exist?(path) || File.symlink?(path)
      raise ListenError, "cannot listen on #{path}: it exists and is not a socket" unless File.socket?(path)
      raise AddressInUseError, "cannot listen on #{path}: the path is in use" if in_use?(path)

      output.puts "removing existing socket file:#{path}"
      output.flush
      File.unlink(path)
    rescue Errno::ENOENT
      # The server that is just ending was quicker.
      nil
    end

    # Whether a process listens there: the kernel refuses connections to a socket that nobody has open (unix(7)).
    def in_use?(path)
      probe = Socket.new(Socket::AF_UNIX, Socket::SOCK_STREAM, 0)
      probe.connect_nonblock(Addrinfo.unix(path))
      true
    rescue Errno::EAGAIN, Errno::EPROTOTYPE
      # Its backlog is full; or it is somebody's socket of another type.
      true
    rescue Errno::ECONNREFUSED, Errno::ENOENT
      false
    ensure
      probe&.close
    end

    def listen(path, backlog, mode)
      socket = Socket.new(Socket::AF_UNIX, Socket::SOCK_STREAM, 0)
      socket.bind(Addrinfo.unix(path))
      # Before listen(2), so that no client meets the other mode; umask(2) would change the files of other threads too.
      File.chmod(mode, path)
      socket.listen(backlog)
      socket
    rescue SystemCallError
      socket&.close
      raise
    end
    private_class_method :remove_stale, :in_use?, :listen
  end
end
