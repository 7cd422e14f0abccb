# frozen_string_literal: true

require "support/http_helpers"

RSpec.describe "B-truncated-body", once: "bytes on the wire" do
  before(:context) { serve(HttpApps.ru(:echo)) }

  {
    "of a Content-Length" => ["Content-Length: 100", "x" * 50],
    "of a Content-Length, with nothing sent" => ["Content-Length: 100", ""],
    "of a large Content-Length" => ["Content-Length: 5000000", "x" * 2_000_000],
    "in the middle of a chunk" => ["Transfer-Encoding: chunked", "a\r\nabc"],
    "between two chunks" => ["Transfer-Encoding: chunked", "3\r\nabc\r\n"],
    "in a chunk's size" => ["Transfer-Encoding: chunked", "3\r\nabc\r\n1"],
    "in the last chunk" => ["Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n"]
  }.each do |what, (framing, body)|
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
  ensure
    peers&.each(&:close)
  end
end

RSpec.describe "B-status-408 a request that does not come in time", once: "timers of the engine" do
  before(:context) { serve(HttpApps.ru(:echo), options: { "Timeout" => "1" }) }

  # All of them wait at the same time: it is one second for the group.
  before(:context) do
    @began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    @waiting = {
      "silence" => "", "head" => "GET /late HTTP/1.1\r\nHost: a\r\n",
      "body" => "POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc",
      "large body" => "POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n#{"x" * 1_000_000}",
      "chunks" => "POST /late HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    }.transform_values { |bytes| HttpPeer.new(server).write(bytes) }
  end

  after(:context) { @waiting.each_value(&:close) }

  %w[head body chunks].push("large body").each do |what|
    it "B-status-408 answers #{what} that stops coming with 408" do
      response = HttpResponse.parse(@waiting.fetch(what).read_to_end)
      expect(response.status).to eq(408)
      expect(@waiting.fetch(what).ending).to eq(:closed)
      expect(Process.clock_gettime(Process::CLOCK_MONOTONIC) - @began).to be >= 0.9
    end
  end

  it "B-status-408 serves others meanwhile, and the app has seen none of the late ones" do
    expect(server.get("/now").status).to eq(200)
    expect(journal.lines.grep(/late/)).to be_empty
  end

  it "B-status-408 has nothing to say to a client that has said nothing" do
    expect(@waiting.fetch("silence").read_to_end).to eq("")
  end
end
