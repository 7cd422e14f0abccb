# frozen_string_literal: true

# Two readers of the same bytes that see two different requests in them are how requests are smuggled past a proxy.
RSpec.describe "B-framing a request whose end is in doubt", once: "bytes on the wire" do
  before(:context) { serve(HttpApps.ru(:echo)) }

  post = "POST /doubt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
  smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"

  # What else is refused is in rules_spec.rb.
  {
    "B-cl-te a chunked request and a length" => "#{post}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n#{smuggled}",
    "B-two-lengths of 0 and more" => "#{post}Content-Length: 0\r\nContent-Length: #{smuggled.bytesize}\r\n\r\n#{smuggled}",
    "B-past-length bytes past Content-Length" => "#{post}Content-Length: 5\r\n\r\nabcdefgh",
    "B-past-length a request past Content-Length" => "#{post}Content-Length: 5\r\n\r\nabcde#{smuggled}",
    "B-past-length a request past a Content-Length of 0" => "#{post}Content-Length: 0\r\n\r\n#{smuggled}",
    "B-past-length a request past 2 MB" => "#{post}Content-Length: 2000000\r\n\r\n#{"x" * 2_000_000}#{smuggled}",
    "B-past-length a CRLF and a request past Content-Length" => "#{post}Content-Length: 5\r\n\r\nabcde\r\n#{smuggled}",
    "B-past-length a CRLF and a byte past Content-Length" => "#{post}Content-Length: 5\r\n\r\nabcde\r\nx",
    "B-past-length a CRLF and a request past 2 MB" => "#{post}Content-Length: 2000000\r\n\r\n#{"x" * 2_000_000}\r\n#{smuggled}",
    "B-past-length a request past the last chunk" => "#{post}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n#{smuggled}"
  }.each do |what, bytes|
    it "#{what}: 400, and nothing of it reaches the app" do
      before = journal.lines.size
      wire, ending = HttpPeer.exchange(server, bytes)
      expect([HttpResponse.all(wire).map(&:status), ending]).to eq([[400], :closed])
      server.get("/after")
      expect(journal.lines[before..]).to eq(["GET /after"])
    end
  end

  # How much the next read asks for depends on how much is still due.
  [6, 20_000, 2_000_000].each do |length|
    { "refuses a request" => [smuggled, 400], "refuses a CRLF and a request" => ["\r\n#{smuggled}", 400],
      "minds no CRLF, as old clients send it," => ["\r\n", 200], "minds no CR whose LF is still to come" => ["\r", 200] }
      .each do |what, (ending, status)|
        it "B-past-length #{what} that comes with the last of #{length} bytes" do
          HttpPeer.open(server) do |peer|
            peer.write("#{post}Content-Length: #{length}\r\n\r\nab")
            server.get("/between")
            peer.write("#{"x" * (length - 2)}#{ending}")
            expect([HttpResponse.parse(peer.read_to_end).status, peer.ending]).to eq([status, :closed])
          end
          expect(journal.lines.grep(/smuggled/)).to be_empty
          expect_worker_alive
        end
      end
  end
end
