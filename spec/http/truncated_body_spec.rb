# frozen_string_literal: true

RSpec.describe "B-truncated-body", once: "bytes on the wire" do
  before(:context) { serve(HttpApps.ru(:echo)) }

  { "of a Content-Length" => ["Content-Length: 100", "x" * 50],
    "of a Content-Length, with nothing sent" => ["Content-Length: 100", ""],
    "of a large Content-Length" => ["Content-Length: 5000000", "x" * 2_000_000],
    "in the middle of a chunk" => ["Transfer-Encoding: chunked", "a\r\nabc"],
    "between two chunks" => ["Transfer-Encoding: chunked", "3\r\nabc\r\n"],
    "in a chunk's size" => ["Transfer-Encoding: chunked", "3\r\nabc\r\n1"],
    "in the last chunk" => ["Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n"] }.each do |what, (framing, body)|
    bytes = "POST /truncated HTTP/1.1\r\nHost: a\r\n#{framing}\r\n\r\n#{body}"

    it "B-truncated-body #{what}: the connection is closed, the app is not called" do
      wire, = HttpPeer.exchange(server, bytes, half_close: true)
      expect(wire).to eq("").or start_with("HTTP/1.1 400 ")
      HttpPeer.open(server) { |peer| peer.write(bytes).abort }
      expect_worker_alive
      expect(journal.lines.grep(/truncated/)).to be_empty
    end
  end

  it "B-truncated-body never spins, whether the client waits or is gone", alone: "CPU seconds" do
    peers = Array.new(20) { HttpPeer.new(server) }
    peers.each { |peer| peer.write("POST /truncated HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc") }
    peers.first(10).each(&:close)
    server.get("/")
    expect(ProcessTable.cpu_seconds_within(0.5, @worker)).to be < 0.1
    expect_worker_alive
  end
end

RSpec.describe "B-status-408 a request that does not come in time", once: "timers of the engine" do
  it "B-status-408 is answered with 408 where it has begun, and never seen by the app; others are served meanwhile" do
    serve(HttpApps.ru(:echo), options: { "Timeout" => "1" })
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    silent, *begun = ["", "GET /late HTTP/1.1\r\nHost: a\r\n", "POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc",
                      "POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n#{"x" * 1_000_000}",
                      "POST /late HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"].map { |bytes| HttpPeer.new(server).write(bytes) }
    expect(server.get("/now").status).to eq(200)
    expect(begun.map { |peer| [HttpResponse.parse(peer.read_to_end).status, peer.ending] }).to all(eq([408, :closed]))
    expect([Process.clock_gettime(Process::CLOCK_MONOTONIC) - began, silent.read_to_end]).to match([be >= 0.9, ""])
    expect(journal.lines.grep(/late/)).to be_empty
  end
end
