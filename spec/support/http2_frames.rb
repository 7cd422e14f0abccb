# frozen_string_literal: true

# A client of HTTP/2 that writes its frames itself (RFC 9113 §4): for what curl and nghttp cannot send.
class HTTP2Frames
  PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
  DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
  END_STREAM, ACK, END_HEADERS = 1, 1, 4

  # RFC 8441 §3
  ENABLE_CONNECT_PROTOCOL = 8

  # The first byte of a field block that begins with `:status: 200` (RFC 7541, appendix A).
  STATUS_200 = 0x88

  Frame = Struct.new(:type, :flags, :stream, :payload)

  # Names of settings (RFC 9113 §6.5.2).
  INITIAL_WINDOW_SIZE = 4

  # @param io [#read, #write]
  # @param settings [Hash{Integer => Integer}] the client's
  def initialize(io, settings = {})
    @io = io
    @io.write(PREFACE)
    write(SETTINGS, 0, 0, settings.flatten.pack("nN" * settings.size))
  end

  # @return [Hash{Integer => Integer}] the server's settings
  def settings = @settings ||= read(SETTINGS).payload.unpack("nN" * (@last.payload.bytesize / 6)).each_slice(2).to_h

  # Fields as literals that nobody keeps (RFC 7541 §6.2.2).
  def headers(stream, fields, flags: END_HEADERS)
    texts = fields.flat_map { |name, value| ["\0", [name.bytesize].pack("C"), name, [value.bytesize].pack("C"), value] }
    write(HEADERS, flags, stream, texts.map(&:b).join)
  end

  def data(stream, bytes, flags: 0) = write(DATA, flags, stream, bytes)

  # @return [Array<Integer>] streams that the server has reset, as far as its frames were read
  def resets = @resets ||= []

  # Gives a stream room for more bytes.
  def window_update(stream, bytes) = write(WINDOW_UPDATE, 0, stream, [bytes].pack("N"))

  # Sends what belongs to no stream, and waits for an answer.
  def idle
    write(SETTINGS, 0, 0, "")
    write(WINDOW_UPDATE, 0, 0, [1].pack("N"))
    write(PING, 0, 0, "8 bytes.")
    read(PING)
  end

  # @param payload [String] of the server's PING
  def answer_ping(payload) = write(PING, ACK, 0, payload)

  # Skips frames of other types.
  #
  # @return [Frame] the next one of a type
  def read(*types)
    loop do
      head = @io.read(9) or raise EOFError, "the server has closed the connection"
      length, type, flags, stream = ("\0".b + head).unpack("NCCN")
      @last = Frame.new(type, flags, stream, @io.read(length))
      write(SETTINGS, ACK, 0, "") if type == SETTINGS && (flags & ACK).zero?
      resets << stream if type == RST_STREAM
      return @last if types.include?(type)
    end
  end

  private

  def write(type, flags, stream, payload) = @io.write([payload.bytesize].pack("N")[1, 3] + [type, flags, stream].pack("CCN") + payload.b)
end
