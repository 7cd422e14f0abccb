# frozen_string_literal: true

require "support/http_helpers"

# Two readers of the same bytes that see two different requests in them are how requests are smuggled past a proxy.
RSpec.describe "B-framing a request whose end is in doubt" do
  before(:context) { serve(HttpApps.ru(:echo)) }

  post = "POST /doubt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
  smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"

  # Sends bytes, and expects a 400, an orderly end, and an app that has seen nothing of them.
  def expect_refusal(bytes, status: 400)
    before = journal.lines.size
    wire, ending = HttpPeer.exchange(server, bytes.b)
    expect(HttpResponse.all(wire).map(&:status)).to eq([status])
    expect(ending).to eq(:closed)
    server.get("/after")
    expect(journal.lines[before..]).to eq(["GET /after"])
  end

  {
    "B-cl-te Content-Length with Transfer-Encoding" => {
      "in this order" => "#{post}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "in that order" => "#{post}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
      "spelt otherwise" => "#{post}transfer-ENCODING: CHUNKED\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
      "with a request behind it" => "#{post}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n#{smuggled}",
      "of another coding" => "#{post}Content-Length: 5\r\nTransfer-Encoding: identity\r\n\r\nabcde"
    },
    "B-two-lengths Content-Length" => {
      "twice, and different" => "#{post}Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
      "twice, with 0 first" => "#{post}Content-Length: 0\r\nContent-Length: #{smuggled.bytesize}\r\n\r\n#{smuggled}",
      "as a list of different ones" => "#{post}Content-Length: 5, 6\r\n\r\nabcdef",
      "with a sign" => "#{post}Content-Length: +5\r\n\r\nabcde",
      "below zero" => "#{post}Content-Length: -5\r\n\r\nabcde",
      "with a blank in it" => "#{post}Content-Length: 1 0\r\n\r\n0123456789",
      "as a hexadecimal number" => "#{post}Content-Length: 0x5\r\n\r\nabcde"
    },
    "B-te a Transfer-Encoding" => {
      "that does not end in chunked" => "#{post}Transfer-Encoding: gzip\r\n\r\nabc",
      "with chunked twice" => "#{post}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
      "in two fields" => "#{post}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
      "that looks like chunked" => "#{post}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
      "with a vertical tab before it" => "#{post}Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n",
      "in HTTP/1.0, which has none" => "POST /doubt HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    },
    "B-chunk a chunk" => {
      "whose size is no number" => "#{post}Transfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n",
      "without a size" => "#{post}Transfer-Encoding: chunked\r\n\r\n\r\nabc\r\n0\r\n\r\n",
      "of size -1" => "#{post}Transfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n",
      "of size 0x3" => "#{post}Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
      "that is longer than its size" => "#{post}Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
      "that is shorter than its size" => "#{post}Transfer-Encoding: chunked\r\n\r\n5\r\nabc\r\n0\r\n\r\n",
      "whose size ends in a lone CR" => "#{post}Transfer-Encoding: chunked\r\n\r\n3\rabc\r\n0\r\n\r\n",
      "whose size ends in a lone LF" => "#{post}Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
      "whose end is a lone LF" => "#{post}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\n0\r\n\r\n",
      "with a line end in its extension" => "#{post}Transfer-Encoding: chunked\r\n\r\n3;a=\nb\r\nabc\r\n0\r\n\r\n",
      "with a space before its size" => "#{post}Transfer-Encoding: chunked\r\n\r\n 3\r\nabc\r\n0\r\n\r\n"
    },
    "B-bare-cr a bare CR" => {
      "in a field value" => "GET /doubt HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
      "at the end of a field" => "GET /doubt HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
      "in the request line" => "GET /doubt\r HTTP/1.1\r\nHost: a\r\n\r\n",
      "for the empty line" => "GET /doubt HTTP/1.1\r\nHost: a\r\n\rX: b\r\n\r\n"
    },
    "B-space-before-colon a space before the colon" => {
      "of Content-Length" => "#{post}Content-Length : 5\r\n\r\nabcde",
      "of Transfer-Encoding" => "#{post}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
      "of any field" => "GET /doubt HTTP/1.1\r\nHost: a\r\nX-Any : b\r\n\r\n",
      "that is a tab" => "GET /doubt HTTP/1.1\r\nHost: a\r\nX-Any\t: b\r\n\r\n",
      "in front of a field" => "GET /doubt HTTP/1.1\r\nHost: a\r\n X-Any: b\r\n\r\n"
    },
    "B-past-length bytes past" => {
      "Content-Length" => "#{post}Content-Length: 5\r\n\r\nabcdefgh",
      "Content-Length: a whole request" => "#{post}Content-Length: 5\r\n\r\nabcde#{smuggled}",
      "a Content-Length of 0" => "#{post}Content-Length: 0\r\n\r\n#{smuggled}",
      "a Content-Length of 2 MB" => "#{post}Content-Length: 2000000\r\n\r\n#{"x" * 2_000_000}#{smuggled}",
      "Content-Length: a CRLF and a request" => "#{post}Content-Length: 5\r\n\r\nabcde\r\n#{smuggled}",
      "Content-Length: a CRLF and a byte" => "#{post}Content-Length: 5\r\n\r\nabcde\r\nx",
      "a Content-Length of 2 MB: a CRLF and a request" =>
        "#{post}Content-Length: 2000000\r\n\r\n#{"x" * 2_000_000}\r\n#{smuggled}",
      "the last chunk" => "#{post}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n#{smuggled}"
    }
  }.each do |group, cases|
    cases.each do |what, bytes|
      it("#{group} #{what}: 400, and nothing of it reaches the app") { expect_refusal(bytes) }
    end
  end

  it "B-chunk a chunk of a size past all numbers: 413, and nothing of it reaches the app" do
    expect_refusal("#{post}Transfer-Encoding: chunked\r\n\r\n#{"f" * 17}\r\nabc\r\n0\r\n\r\n", status: 413)
  end

  it "B-past-length refuses them, too, when they come later than the body" do
    HttpPeer.open(server) do |peer|
      peer.write("#{post}Content-Length: 10\r\n\r\nabcde")
      # It was accepted and read before this one.
      server.get("/between")
      peer.write("fghij#{smuggled}")
      expect(HttpResponse.all(peer.read_to_end).map(&:status)).to eq([400])
    end
    expect(journal.lines.grep(/smuggled/)).to be_empty
  end

  # How much the next read asks for depends on how much is still due.
  [6, 20_000, 2_000_000].each do |length|
    it "B-past-length refuses them, too, when they begin with CRLF and come with the last of #{length} bytes" do
      HttpPeer.open(server) do |peer|
        peer.write("#{post}Content-Length: #{length}\r\n\r\nab")
        server.get("/between")
        peer.write("#{"x" * (length - 2)}\r\n#{smuggled}")
        expect(HttpResponse.all(peer.read_to_end).map(&:status)).to eq([400])
      end
      expect(journal.lines.grep(/smuggled/)).to be_empty
      expect(journal.lines.last).to eq("GET /between")
    end

    it "B-past-length minds no CRLF, as old clients send it, nor a CR whose LF is still to come (after #{length} bytes)" do
      ["\r\n", "\r"].each do |ending|
        HttpPeer.open(server) do |peer|
          peer.write("#{post}Content-Length: #{length}\r\n\r\nab")
          server.get("/between")
          peer.write("#{"x" * (length - 2)}#{ending}")
          expect(HttpResponse.parse(peer.read_to_end).status).to eq(200)
          expect(peer.ending).to eq(:closed)
        end
      end
      expect_worker_alive
    end
  end

  it "B-past-length never shows the app a request behind one that ends the connection" do
    server.raw("GET /first HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n#{smuggled}")
    server.get("/after")
    expect(journal.lines.grep(/smuggled/)).to be_empty
  end

  it "B-framing all the time with the worker that was there from the start" do
    expect_worker_alive
  end
end
