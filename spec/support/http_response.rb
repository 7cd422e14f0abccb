# frozen_string_literal: true

# A response as it came over the wire, taken apart without the help of any HTTP library: a spec sees exactly what the server sent.
HttpResponse = Struct.new(:version, :status, :reason, :headers, :body, :raw)

class HttpResponse
  # Header lines in their order; a name may occur more than once.
  class Headers
    include Enumerable

    def initialize(pairs) = @pairs = pairs
    def [](name) = key?(name) ? all(name).join(", ") : nil
    def values_at(*names) = names.map { |name| self[name] }
    def all(name) = @pairs.select { |key, _| key.casecmp?(name) }.map(&:last)
    def key?(name) = !all(name).empty?
    def names = @pairs.map(&:first)
    def each(&block) = @pairs.each(&block)
  end

  class Malformed < StandardError; end

  # Asks on a connection, which is closed then.
  def self.ask(socket, path = "/")
    socket.write("GET #{path} HTTP/1.0\r\n\r\n")
    parse(socket.read)
  ensure
    socket.close
  end

  # Takes one response from the front of some bytes that end where the connection did, and gives it with the bytes that follow it.
  def self.take(bytes, head_only: false)
    head, rest = bytes.split("\r\n\r\n", 2)
    raise Malformed, "no end of head in #{bytes.inspect[0, 500]}" unless rest

    status_line, *lines = head.split("\r\n")
    version, status, reason = status_line.match(%r{\AHTTP/(\d\.\d) (\d{3})(?: (.*))?\z})&.captures
    raise Malformed, "bad status line #{status_line.inspect}" unless version

    headers = Headers.new(lines.map { |line| line.split(/: ?/, 2) })
    bodyless = head_only || status.start_with?("1") || %w[204 304].include?(status)
    body, left = bodyless ? [+"", rest] : take_body(headers, rest)
    raw = bytes[0, bytes.bytesize - left.bytesize]
    [new(version, status.to_i, reason, headers, body, raw), left]
  end

  # All responses in some bytes, in order (pipelining, 100 Continue).
  def self.all(bytes, head_only: false)
    responses = []
    until bytes.empty?
      response, bytes = take(bytes, head_only: head_only)
      responses << response
    end
    responses
  end

  # The final response: interim ones (1xx) before it are passed over.
  def self.parse(bytes, head_only: false)
    all(bytes, head_only: head_only).find { |response| response.status >= 200 } or
      raise Malformed, "no final response in #{bytes.inspect[0, 500]}"
  end

  def self.take_body(headers, rest)
    if headers["Transfer-Encoding"]&.match?(/chunked\z/i)
      take_chunks(rest)
    elsif (length = headers["Content-Length"]&.to_i)
      raise Malformed, "body of #{rest.bytesize} bytes, Content-Length #{length}" if rest.bytesize < length

      [rest.byteslice(0, length), rest.byteslice(length..)]
    else
      [rest, +""]
    end
  end

  def self.take_chunks(rest)
    body = +"".b
    loop do
      size, rest = rest.split("\r\n", 2)
      raise Malformed, "bad chunk size #{size.inspect}" unless rest && size.match?(/\A\h+\z/)

      length = size.hex
      break if length.zero?

      raise Malformed, "chunk cut short" unless rest.byteslice(length, 2) == "\r\n"

      body << rest.byteslice(0, length)
      rest = rest.byteslice((length + 2)..)
    end
    raise Malformed, "no end of chunks: #{rest.inspect[0, 100]}" unless rest.start_with?("\r\n")

    [body, rest.byteslice(2..)]
  end
  private_class_method :take_body, :take_chunks
end
