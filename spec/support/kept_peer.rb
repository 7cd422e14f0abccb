# frozen_string_literal: true

require_relative "http_peer"
require_relative "http_response"

# A client that keeps its connection: it takes the responses off it one by one.
class KeptPeer < HttpPeer
  LAST_CHUNK = "\r\n0\r\n\r\n"

  # Sends a request, with whatever lines its head is to have besides.
  def ask(path, *lines, verb: "GET", version: "1.1", body: nil)
    write(self.class.request(path, *lines, verb: verb, version: version, body: body))
  end

  def answer(head_only: false)
    hurry
    read_until(/\r\n\r\n/)
    read_until_size(whole_size(head_only))
    loop do
      response, @received = HttpResponse.take(@received, head_only: head_only)
      return response
    rescue HttpResponse::Malformed
      raise unless read_some

      # To take the whole apart for each piece of it would take for ever.
      read_some until @received.end_with?(LAST_CHUNK) || !anything_within?(0.05)
    end
  end

  def get(path, *lines, **keywords) = ask(path, *lines, **keywords).answer(head_only: keywords[:verb] == "HEAD")

  # Whether the server has ended the connection in an orderly way, with nothing more to say.
  def closed_without_a_word? = read_to_end.empty? && ending == :closed

  def self.request(path, *lines, verb: "GET", version: "1.1", body: nil)
    lines.push("Content-Length: #{body.bytesize}") if body
    "#{["#{verb} #{path} HTTP/#{version}", "Host: a", *lines].join("\r\n")}\r\n\r\n".b << body.to_s.b
  end

  # The same, with the body in chunks.
  def self.chunked(path, *parts)
    chunks = parts.map { |part| "#{part.bytesize.to_s(16)}\r\n".b << part.b << "\r\n" }
    request(path, "Transfer-Encoding: chunked", verb: "POST") << chunks.join << "0\r\n\r\n"
  end

  # From now on this client reads as fast as any.
  def hurry = @socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_RCVBUF, 1 << 20)

  private

  # So many bytes there must be at least; without a length or chunks, all until the end.
  def whole_size(head_only)
    head = @received[/\A.*?\r\n\r\n/m]
    bodiless = head_only || head.match?(%r{\AHTTP/1\.1 (?:1\d\d|204|304)})
    return head.bytesize if bodiless || head.match?(/^transfer-encoding: chunked/i)

    length = head[/^content-length: (\d+)/i, 1]
    length ? head.bytesize + length.to_i : Float::INFINITY
  end
end
