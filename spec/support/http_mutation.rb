# frozen_string_literal: true

# Requests that are nearly right: well-formed ones with a few random changes. The same seed gives the same requests.
class HttpMutation
  SEEDS = [
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /a%20b?c=d HTTP/1.0\r\nUser-Agent: x\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 11\r\n\r\nhello world",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: v\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\nX_Under: 1\r\nX-Under: 2\r\nAccept: a\r\nAccept: b\r\n\r\n",
    "HEAD http://b:80/p?q HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\r\n"
  ].freeze

  # What parsers trip over.
  PIECES = [
    "\r", "\n", "\0", "\r\n", "\r\n\r\n", " ", "\t", ":", ";", ",", "%", "%zz", "?", "#", "\x7F", "\x80", "\xFF", "0", "-1",
    "4294967296", "18446744073709551616", "fffffffffffffff", "chunked", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n",
    "Host: b\r\n", "Expect: 100-continue\r\n", " HTTP/1.1", "HTTP/2.0", "A" * 300, "\r\n ", "/../", "é"
  ].map(&:b).freeze

  def initialize(seed)
    @random = Random.new(seed)
  end

  # @return [String] the next request
  def next
    bytes = pick(SEEDS).b
    (1 + @random.rand(4)).times { bytes = change(bytes) }
    bytes
  end

  private

  def change(bytes)
    at = @random.rand(bytes.bytesize + 1)
    length = @random.rand(8)
    before = bytes.byteslice(0, at)
    after = bytes.byteslice(at..)
    case @random.rand(6)
    when 0 then before << pick(PIECES) << after
    when 1 then before << after.byteslice(length..).to_s
    when 2 then before << @random.bytes(length) << after.byteslice(length..).to_s
    when 3 then before << after.byteslice(0, length * 5) << after
    when 4 then before
    else swap_lines(bytes)
    end
  end

  def swap_lines(bytes)
    return bytes if bytes.empty?

    lines = bytes.split("\r\n", -1)
    one = @random.rand(lines.size)
    other = @random.rand(lines.size)
    lines[one], lines[other] = lines[other], lines[one]
    lines.join("\r\n")
  end

  def pick(list)
    list[@random.rand(list.size)]
  end
end
