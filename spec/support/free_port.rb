# frozen_string_literal: true

require "socket"

# Ports that are free, and stay so until they are wanted: between "this one is free" and a server's bind(2) anybody could get it.
# A socket that is bound and does not listen keeps a port from whoever asks for any (port 0), and from nobody who asks for that one with
# SO_REUSEADDR, as servers do (socket(7)). To clients it is a port where nobody listens.
module FreePort
  # @param count [Integer] ports in a row
  # @yieldparam port [Integer] the first; they are kept until the block ends
  def self.keep(count = 1)
    holders = hold(count)
    yield holders.first.local_address.ip_port
  ensure
    holders&.each(&:close)
  end

  def self.hold(count)
    holders = [bound(0)]
    holders << bound(holders.last.local_address.ip_port + 1) while holders.size < count
    holders
  rescue Errno::EADDRINUSE, SocketError
    holders.each(&:close)
    retry
  end

  # SO_REUSEADDR comes after bind(2), which takes no port that somebody else has, or keeps, this way.
  def self.bound(port)
    socket = Socket.new(:INET, :STREAM)
    socket.bind(Addrinfo.tcp("127.0.0.1", port))
    socket.setsockopt(:SOCKET, :REUSEADDR, true)
    socket
  rescue SystemCallError
    socket.close
    raise
  end
  private_class_method :hold, :bound
end
