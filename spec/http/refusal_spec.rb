# frozen_string_literal: true

require "support/http_helpers"

RSpec.describe "B-status a refused request" do
  before(:context) { serve(HttpApps.ru(:echo)) }

  # What comes back for bytes that must not reach the app.
  def refused(bytes, head_only: false)
    before = journal.lines.size
    wire, ending = HttpPeer.exchange(server, bytes)
    response = HttpResponse.all(wire, head_only: head_only).last
    expect(ending).to eq(:closed)
    expect(response.headers["Connection"]).to eq("close")
    expect(journal.lines.size).to eq(before)
    response
  end

  {
    "no request line" => "nonsense\r\n\r\n",
    "a request line without a protocol (HTTP/0.9)" => "GET /\r\n\r\n",
    "another protocol" => "GET / FTP/1.1\r\nHost: a\r\n\r\n",
    "a method that is no token" => "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
    "a space before the method" => " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "a target that is no target" => "GET a/b HTTP/1.1\r\nHost: a\r\n\r\n",
    "a target with user information" => "GET http://user@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "a control character in the target" => "GET /a\x01b HTTP/1.1\r\nHost: a\r\n\r\n",
    "a NUL in the target" => "GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n",
    "no Host in HTTP/1.1" => "GET / HTTP/1.1\r\n\r\n",
    "two Hosts" => "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a Host with a blank in it" => "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    "a Host with a path" => "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "a Host with user information" => "GET / HTTP/1.1\r\nHost: user@a\r\n\r\n",
    "a Host with a backslash" => "GET / HTTP/1.1\r\nHost: a\\b\r\n\r\n",
    "a Host with a query" => "GET / HTTP/1.1\r\nHost: a?b\r\n\r\n",
    "a Host with a fragment" => "GET / HTTP/1.1\r\nHost: a#b\r\n\r\n",
    "a Host in angle brackets" => "GET / HTTP/1.1\r\nHost: <a>\r\n\r\n",
    "a Host in quotes" => "GET / HTTP/1.1\r\nHost: \"a\"\r\n\r\n",
    "a Host with bytes that are no ASCII" => "GET / HTTP/1.1\r\nHost: caf\xE9\r\n\r\n",
    "a Host with a blank in it, of HTTP/1.0" => "GET / HTTP/1.0\r\nHost: a b\r\n\r\n",
    "a target whose authority is no host" => "GET http://a\\b/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "the asterisk for another method than OPTIONS" => "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
    "a field without a colon" => "GET / HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n",
    "a field without a name" => "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
    "a field name that is no token" => "GET / HTTP/1.1\r\nHost: a\r\nX(Y): b\r\n\r\n",
    "a NUL in a field value" => "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
    "a folded field" => "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    "a Content-Length that is no number" => "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: abc\r\n\r\n",
    "an empty Content-Length" => "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n"
  }.each do |what, bytes|
    it "B-status-400 answers #{what} with 400" do
      expect(refused(bytes.b).status).to eq(400)
    end
  end

  it "B-status takes every Host that is one" do
    ["a", "a.example:80", "127.0.0.1", "[::1]:9292", "xn--caf-dma.example", "a_b", "a%20b"].each do |host|
      expect(talk("GET / HTTP/1.1", "Host: #{host}", "Connection: close").status).to eq(200)
    end
    expect(talk("OPTIONS * HTTP/1.1", "Host: a", "Connection: close").status).to eq(200)
  end

  it "B-status-400 says in a line what was wrong" do
    response = refused("nonsense\r\n\r\n")
    expect(response.headers["Content-Type"]).to start_with("text/plain")
    expect(response.body).to match(/\A400 Bad Request: .+\n\z/)
    expect(response.headers["Date"]).to match(/GMT/)
  end

  it "B-status-414 answers a target that is too long with 414" do
    expect(talk("GET /#{"a" * 10_000} HTTP/1.1", "Host: a", "Connection: close").status).to eq(200)
    expect(refused(message("GET /#{"a" * 20_000} HTTP/1.1", "Host: a")).status).to eq(414)
    expect(refused(message("GET /#{"a" * 500_000} HTTP/1.1", "Host: a")).status).to eq(414)
  end

  it "B-status-414 does so before the line has come to an end" do
    expect(refused("GET /#{"a" * 100_000}").status).to eq(414)
  end

  it "B-status-431 answers a head that is too large with 431" do
    expect(talk("GET / HTTP/1.1", "Host: a", "Connection: close", "X: #{"a" * 30_000}").status).to eq(200)
    expect(refused(message("GET / HTTP/1.1", "Host: a", "X: #{"a" * 100_000}")).status).to eq(431)
    fields = Array.new(20) { |index| "X-#{index}: #{"a" * 5000}" }
    expect(refused(message("GET / HTTP/1.1", "Host: a", *fields)).status).to eq(431)
  end

  it "B-status-431 does so before the head has come to an end" do
    expect(refused("GET / HTTP/1.1\r\nHost: a\r\nX: #{"a" * 200_000}").status).to eq(431)
  end

  it "B-status-431 answers too many fields, and a name that is too long, with 431" do
    expect(refused(message("GET / HTTP/1.1", "Host: a", *Array.new(500) { |index| "X-#{index}: 1" })).status).to eq(431)
    expect(refused(message("GET / HTTP/1.1", "Host: a", "#{"X" * 5000}: 1")).status).to eq(431)
  end

  it "B-status-501 answers a transfer coding that is not known with 501" do
    expect(refused(message("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: gzip, chunked", body: "0\r\n\r\n")).status).to eq(501)
  end

  it "B-status-505 answers another version of HTTP with 505" do
    %w[HTTP/2.0 HTTP/3.0 HTTP/0.9].each do |version|
      expect(refused(message("GET / #{version}", "Host: a")).status).to eq(505)
    end
    expect(refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").status).to eq(505)
  end

  it "B-status-413 answers a length that no number can hold with 413" do
    expect(refused(message("POST / HTTP/1.1", "Host: a", "Content-Length: #{"9" * 30}")).status).to eq(413)
  end

  it "B-status takes what RFC 9112 asks a server to be lenient about: an empty line first, HTTP/1.0 without Host" do
    expect(HttpResponse.parse(server.raw("\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).status).to eq(200)
    expect(HttpResponse.parse(server.raw("GET / HTTP/1.0\r\n\r\n")).status).to eq(200)
  end

  it "B-status lets a client that sends on and on read its refusal" do
    HttpPeer.open(server) do |peer|
      peer.write("POST /flood HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n#{"f" * 300_000}")
      expect(HttpResponse.parse(peer.read_to_end).status).to eq(400)
      expect(peer.ending).to eq(:closed)
    end
  end

  # It takes 2 s for that; in that time a client may send far more than this.
  it "B-status takes no more than a mebibyte of what is sent after a refusal" do
    HttpPeer.open(server) do |peer|
      peer.write("POST /flood HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n")
      # What the kernels hold on the way comes on top.
      expect { 500.times { peer.write!("f" * 100_000) } }.to raise_error(SystemCallError)
    end
    expect_worker_alive
  end

  it "B-status waits for 2 s at most for the end of a client that was refused" do
    sockets = -> { ProcessTable.descriptors(@worker).values.count { |target| target&.start_with?("socket:") } }
    before = sockets.call
    HttpPeer.open(server) do |peer|
      peer.write("nonsense\r\n\r\n").read_to_end
      eventually(10) { sockets.call <= before }
    end
  end

  it "B-status a client that connects and leaves without a word is no request, and no error" do
    before = journal.lines.size
    server.connect(&:close_write)
    5.times { server.connect { |socket| socket.write("GE") } }
    expect_worker_alive
    expect(journal.lines.size).to eq(before + 1)
  end

  it "B-status all the time with the worker that was there from the start" do
    expect_worker_alive
  end
end
