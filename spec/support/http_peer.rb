# frozen_string_literal: true

require "socket"
require_relative "clients"
require_relative "gc_mode"

# A client that says what it wants, byte by byte, and sees how its connection ends: an orderly close and a reset are
# not the same to it, as they are not to a client that must know whether it got a whole response.
class HttpPeer
  DEADLINE = GcMode.patient(20)

  class Failed < StandardError; end

  def self.open(server)
    peer = new(server)
    yield peer
  ensure
    peer&.close
  end

  # Everything that comes back for some bytes, and how it ended.
  def self.exchange(server, bytes, half_close: false)
    open(server) do |peer|
      peer.write(bytes)
      peer.finish_sending if half_close
      peer.read_to_end
      [peer.received, peer.ending]
    end
  end

  attr_reader :received, :ending

  def initialize(server, receive_buffer: nil)
    @socket = receive_buffer ? narrow(server, receive_buffer) : server.connect
    @received = +"".b
    @ending = nil
    Clients.keep(self)
  end

  # Sends all of the bytes. A server that has answered and closed already is no error here: the answer tells.
  def write(bytes)
    write!(bytes)
  rescue Errno::EPIPE, Errno::ECONNRESET
    self
  end

  def write!(bytes)
    @socket.write(bytes)
    self
  end

  # Ends the sending side; the server sees an end of file, unless it has reset the connection before.
  def finish_sending
    @socket.close_write
    self
  rescue Errno::ENOTCONN
    self
  end

  # Whether the server has ended the connection, for a client that does not read: tcp(7), TCP_INFO.
  def cut_off?
    closed = 7 # TCP_CLOSE
    @socket.getsockopt(Socket::IPPROTO_TCP, Socket::TCP_INFO).data.getbyte(0) == closed
  end

  # Packets with data that have come: tcp(7), TCP_INFO.
  def packets = @socket.getsockopt(Socket::IPPROTO_TCP, Socket::TCP_INFO).data.unpack1("x152 L")

  # Whether the server has read all that was sent; until then its kernel keeps it: proc(5), /proc/net/tcp, rx_queue.
  def taken?
    ports = [@socket.remote_address, @socket.local_address].map { |address| format("%04X", address.ip_port) }
    line = File.foreach("/proc/net/tcp").map(&:split).find { |fields| fields[1, 2].map { |place| place[/\h+\z/] } == ports }
    line.nil? || line[4].end_with?(":00000000")
  end

  # Reads until the bytes match, and gives them all.
  def read_until(pattern)
    until @received.match?(pattern)
      raise Failed, "#{@ending} before #{pattern.inspect}: #{@received.inspect[0, 500]}" unless read_some
    end
    @received
  end

  def read_until_size(size)
    while @received.bytesize < size
      break unless read_some
    end
    @received
  end

  def read_to_end
    loop { break unless read_some }
    @received
  end

  # Whether the server sends or ends something within that time, in seconds.
  def anything_within?(seconds) = !@socket.wait_readable(seconds).nil?

  # Reads no more and forgets the connection: unread bytes turn into a reset for the server.
  def abort
    @socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack("ii"))
    close
  end

  def close = @socket.close

  private

  # The buffer's size counts before the connection is made (tcp(7), SO_RCVBUF).
  def narrow(server, bytes)
    socket = Socket.new(:INET, :STREAM)
    socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_RCVBUF, bytes)
    socket.connect(Socket.sockaddr_in(server.port, server.host))
    socket
  end

  def read_some
    return false if @ending
    raise Failed, "no end after #{DEADLINE} s of #{@received.inspect[0, 500]}" unless anything_within?(DEADLINE)

    @received << @socket.readpartial(65_536)
    true
  rescue EOFError
    @ending = :closed
    false
  rescue Errno::ECONNRESET
    @ending = :reset
    false
  end
end
