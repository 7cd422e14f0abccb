# frozen_string_literal: true

require "socket"
require_relative "../error"
require_relative "../listener"
require_relative "../log"
require_relative "../process/safe_file"
require_relative "../text"

module Fastrack
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

    # Another start must not remove the socket that this one has just made. It gets a second: a lock may be for other things.
    def alone_in(directory)
      folder = File.open(directory, File::RDONLY | File::NONBLOCK) if File.readable?(directory)
      100.times { folder.nil? || folder.flock(File::LOCK_EX | File::LOCK_NB) ? break : sleep(0.01) }
      yield
    ensure
      folder&.close
    end

    # Removes nothing but a socket: another kind of file means that the path is wrong.
    #
    def remove_stale(path, output)
      return unless File.exist?(path) || File.symlink?(path)
      raise ListenError, "cannot listen on #{path}: it exists and is not a socket" unless File.socket?(path)
      raise AddressInUseError, "cannot listen on #{path}: the path is in use" if in_use?(path)

      output.puts "removing existing socket file:#{path}"
      output.flush
      File.unlink(path)
    rescue Errno::ENOENT
      # A server that is shutting down has just removed it.
      nil
    end

    # The kernel refuses connections to a socket that no process has open (unix(7)).
    def in_use?(path)
      probe = Socket.new(Socket::AF_UNIX, Socket::SOCK_STREAM, 0)
      probe.connect_nonblock(Addrinfo.unix(path))
      true
    rescue Errno::EAGAIN, Errno::EPROTOTYPE
      # Its backlog is full, or it is a socket of another type.
      true
    rescue Errno::ECONNREFUSED
      bound?(path)
    rescue Errno::ENOENT
      false
    ensure
      probe&.close
    end

    # Whether a process has bound it and does not listen yet. A relative path in proc(5) starts in a directory unknown here.
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
