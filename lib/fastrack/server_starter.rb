# frozen_string_literal: true

require "socket"
require_relative "error"
require_relative "listener"

module Fastrack
  # Listeners inherited from start_server (Perl's Server::Starter), which keeps them open from one deploy to the next.
  # It tells their descriptors in SERVER_STARTER_PORT: `0.0.0.0:80=3;[::1]:80=4;8080=5;/run/app.sock=6`.
  module ServerStarter
    VARIABLE = "SERVER_STARTER_PORT"
    PAIR = /\A(?<address>.+)=(?<number>\d+)\z/.freeze
    HOST_AND_PORT = /\A\[?([^\]]*)\]?:(\d+)\z/.freeze

    module_function

    # @param environment [Hash, ENV]
    # @return [Array<Listener>] empty when there is no start_server
    # @raise [ListenError] when the variable names something that is no listening socket
    def listeners(environment = ENV)
      parse(environment.fetch(VARIABLE, ""), VARIABLE)
    end

    # @param text [String] in that form
    # @param variable [String] whose value it is, for the message
    # @param settings of Listener.new
    # @return [Array<Listener>]
    # @raise [ListenError]
    def parse(text, variable, **settings)
      text.split(";").map do |pair|
        match = PAIR.match(pair) or raise ListenError, "#{variable}: #{pair.inspect} is not of the form address=descriptor"
        listener(match[:address], match[:number].to_i, **settings)
      rescue SystemCallError, SocketError, ArgumentError
        # Ruby's own check, that it is a socket at all, is an ArgumentError in some versions.
        raise ListenError, "#{variable}: descriptor #{match[:number]} for #{match[:address]} is not a listening socket"
      end
    end

    # What the address says is not asked for what kind of socket it is: a path may look like a port.
    def listener(address, number, **settings)
      socket = listening_socket(number)
      return Listener.new(socket) if socket.local_address.unix?

      host, port = HOST_AND_PORT.match(address)&.captures
      # With a bare port start_server listens on all addresses of IPv4. With port 0 the kernel has chosen one.
      port = (port || address).to_i
      Listener.new(socket, host: host || "0.0.0.0", port: port.zero? ? nil : port, **settings)
    end

    def listening_socket(number)
      socket = Socket.for_fd(number)
      # The descriptor is start_server's gift, not an object's to close when it is collected.
      socket.autoclose = false
      raise SocketError unless socket.getsockopt(:SOCKET, :ACCEPTCONN).bool

      socket
    end
    private_class_method :listener, :listening_socket
  end
end
