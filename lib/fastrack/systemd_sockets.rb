# frozen_string_literal: true

require "socket"
require_relative "error"
require_relative "listener"

module Fastrack
  # Listeners that systemd has opened, by the protocol of sd_listen_fds(3): LISTEN_FDS of them from descriptor 3 on, for
  # the process LISTEN_PID alone, with names in LISTEN_FDNAMES (FileDescriptorName= in the socket unit).
  module SystemdSockets
    VARIABLES = %w[LISTEN_FDS LISTEN_PID LISTEN_FDNAMES].freeze
    FIRST = 3

    module_function

    # Takes the variables out of the environment, too: what the app starts has no such descriptors.
    #
    # @param environment [Hash, ENV]
    # @return [Array<Listener>] empty when there is no socket unit
    # @raise [ListenError] when one of them is nothing that connections arrive on
    def take_over(environment = ENV)
      return [] unless environment["LISTEN_PID"].to_i == Process.pid

      count, _, names = environment.values_at(*VARIABLES)
      VARIABLES.each { |name| environment.delete(name) }
      names = names.to_s.split(":")
      Array.new(count.to_i) { |index| listener(FIRST + index, names[index]) }
    end

    def listener(number, name)
      socket = Socket.for_fd(number)
      # The descriptor is systemd's gift, not an object's to close when it is collected.
      socket.autoclose = false
      raise SocketError unless stream?(socket) && socket.getsockopt(:SOCKET, :ACCEPTCONN).bool

      Listener.new(socket)
    rescue SystemCallError, SocketError, ArgumentError
      # Ruby's own check, that it is a socket at all, is an ArgumentError in some versions.
      raise ListenError, "LISTEN_FDS: descriptor #{number}#{" (#{name})" if name} is not a listening stream socket; " \
                         "the socket unit needs ListenStream= and Accept=no"
    end

    def stream?(socket)
      socket.getsockopt(:SOCKET, :TYPE).int == Socket::SOCK_STREAM
    end
    private_class_method :listener, :stream?
  end
end
