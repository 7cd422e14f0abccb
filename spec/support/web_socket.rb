# frozen_string_literal: true

require "base64"
require "digest"
require "securerandom"
require_relative "gc_mode"

# A WebSocket's client (RFC 6455), as far as the specs need one: text, no fragments, pings answered.
class WebSocket
  DEADLINE = GcMode.patient(20)
  # RFC 6455 §1.3
  GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
  TEXT = 1
  CLOSE = 8
  PING = 9
  PONG = 10

  class Failed < StandardError; end

  def initialize(server, path, protocol:)
    @socket = server.connect
    key = Base64.strict_encode64(SecureRandom.bytes(16))
    @socket.write("GET #{path} HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n" \
                  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: #{key}\r\nSec-WebSocket-Protocol: #{protocol}\r\n\r\n")
    check(read_head, Base64.strict_encode64(Digest::SHA1.digest(key + GUID)))
  end

  def send_text(text) = send_frame(TEXT, text.b)

  def receive
    loop do
      opcode, data = read_frame
      case opcode
      when TEXT then return data.force_encoding(Encoding::UTF_8)
      when PING then send_frame(PONG, data)
      when CLOSE then raise Failed, "the server has closed: #{data.inspect}"
      end
    end
  end

  def close = send_frame(CLOSE, [1000].pack("n"))

  # Whether the server says so, too, whatever it has sent before.
  def received_close?
    loop { return true if read_frame.first == CLOSE }
  end

  private

  def check(head, accept)
    raise Failed, head unless head.start_with?("HTTP/1.1 101 ") && head.match?(/^sec-websocket-accept: #{Regexp.escape(accept)}\r$/i)
  end

  def read_head
    head = +""
    head << read(1) until head.end_with?("\r\n\r\n")
    head
  end

  # Clients mask what they send (RFC 6455 §5.3).
  def send_frame(opcode, data)
    mask = SecureRandom.bytes(4)
    size = data.bytesize < 126 ? [0x80 | data.bytesize].pack("C") : [0x80 | 126, data.bytesize].pack("Cn")
    masked = data.bytes.each_with_index.map { |byte, index| byte ^ mask.getbyte(index % 4) }
    @socket.write([0x80 | opcode].pack("C") << size << mask << masked.pack("C*"))
  end

  def read_frame
    first, second = read(2).bytes
    size = second & 0x7f
    size = read(2).unpack1("n") if size == 126
    size = read(8).unpack1("Q>") if size == 127
    [first & 0x0f, read(size)]
  end

  def read(size)
    data = +"".b
    while data.bytesize < size
      raise Failed, "nothing came after #{data.inspect}" unless @socket.wait_readable(DEADLINE)

      data << @socket.readpartial(size - data.bytesize)
    end
    data
  end
end
