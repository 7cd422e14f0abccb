# frozen_string_literal: true

require "socket"
require "io/wait"

module Fastrack
  # Ports that a ConfigFile, the app or its hooks open in generation 0. At a HUP two processes run that code at once, and the later one would
  # find each port in use. So the earlier one lends its listening sockets, by a socket pair of the master's, and the later one goes on with
  # them where it finds an address in use. If the later one fails, the earlier one still listens.
  module LentPorts
    # Most sockets, and seconds until they have come: the earlier process may be in a hook.
    MOST = 64
    PATIENCE = 5

    # For TCPServer. It listens at a port of the system's, and then that socket is replaced.
    module Server
      def initialize(*place)
        super
      rescue Errno::EADDRINUSE
        raise unless (found = LentPorts.find(LentPorts.addresses(*place)))

        super("127.0.0.1", 0)
        Fastrack.replace_file(fileno, found.fileno)
      end
    end

    # For Socket, which Socket.tcp_server_sockets uses.
    module Bind
      def bind(address)
        super
      rescue Errno::EADDRINUSE
        place = address.is_a?(Addrinfo) ? address : Addrinfo.new(address)
        raise unless (found = LentPorts.find([LentPorts.place(place)]))

        Fastrack.replace_file(fileno, found.fileno)
        0
      end
    end

    class << self
      # Called in the earlier process.
      #
      # @param descriptor [IO] an end of the pair
      # @param numbers [Array<Integer>] descriptors of listening sockets
      def lend(descriptor, numbers)
        descriptor.autoclose = false
        socket = UNIXSocket.for_fd(descriptor.fileno)
        sockets = numbers.first(MOST).map { |number| IO.for_fd(number, autoclose: false) }
        rights = sockets.any? ? [Socket::AncillaryData.unix_rights(*sockets)] : []
        socket.sendmsg_nonblock("ports", 0, nil, *rights)
      rescue SystemCallError, IO::WaitWritable
        # The later process has ended.
        nil
      ensure
        socket&.close
      end

      # Called in the later process.
      #
      # @param socket [UNIXSocket] the other end
      def expect(socket)
        @socket = socket
        TCPServer.prepend(Server)
        Socket.prepend(Bind)
      end

      # Called when the app is loaded.
      def close
        [@socket, *@lent].compact.each(&:close)
        @socket, @lent = nil, []
      end

      # @param places [Array] see #place
      # @return [Socket, nil] one that listens at one of them
      def find(places)
        @lent ||= @socket ? receive : []
        @lent.find { |socket| places.include?(place(socket.local_address)) }
      end

      # @return [Array] equal for equal addresses
      def place(address) = address.ip? ? [address.ip_address, address.ip_port] : [address.to_sockaddr]

      # @return [Array] of TCPServer's arguments: a port, or a host and a port
      def addresses(host = nil, port) # rubocop:disable Style/OptionalArguments
        host = nil if host.to_s.empty?
        Addrinfo.getaddrinfo(host, port, nil, :STREAM, nil, Socket::AI_PASSIVE).map { |one| place(one) }
      end

      private

      def receive
        return [] unless @socket.wait_readable(PATIENCE)

        _, _, _, *control = @socket.recvmsg(64, scm_rights: true)
        control.flat_map { |one| one.unix_rights || [] }.map do |io|
          io.autoclose = false
          Socket.for_fd(io.fileno).tap { |socket| socket.close_on_exec = true }
        end
      rescue SystemCallError
        []
      end
    end
  end
end
