# frozen_string_literal: true

require "support/http_helpers"
require "support/http_apps/pacing"

RSpec.describe "B-pace clients that are slow, or gone", once: "timers and bytes of the engine" do
  before(:context) { serve(HttpApps.ru(:pacing)) }

  large = HttpApps::Pacing::LARGE
  request = "GET /dribble HTTP/1.1\r\nHost: a\r\nUser-Agent: one that is in no hurry\r\nConnection: close\r\n\r\n"

  # What the app has noted about the body of that name.
  def ticks_during(name)
    eventually { journal.lines.reverse.find { |line| line.start_with?("#{name} ticks") } }.split.last.to_i
  end

  it "B-slow-head serves others while a head comes in byte by byte" do
    HttpPeer.open(server) do |peer|
      request.each_char.with_index do |byte, index|
        peer.write(byte)
        expect(server.get("/other").status).to eq(200) if (index % 10).zero?
      end
      expect(HttpResponse.parse(peer.read_to_end).body).to eq(@worker.to_s)
    end
  end

  it "B-slow-head serves others while many heads come in byte by byte, and each of those in the end" do
    peers = Array.new(50) { HttpPeer.new(server) }
    request.each_char.with_index do |byte, index|
      peers.each { |peer| peer.write(byte) }
      expect(server.get("/other").status).to eq(200) if (index % 20).zero?
    end
    expect(peers.map { |peer| HttpResponse.parse(peer.read_to_end).status }).to all(eq(200))
  ensure
    peers&.each(&:close)
  end

  it "B-slow-head serves others while a body comes in bit by bit" do
    HttpPeer.open(server) do |peer|
      peer.write("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 20\r\n\r\n")
      20.times do
        peer.write("x")
        expect(server.get("/other").status).to eq(200)
      end
      expect(HttpResponse.parse(peer.read_to_end).status).to eq(200)
    end
  end

  it "B-slow-head is not taken in by heads that stop: a hundred of them stand, and others are served" do
    peers = Array.new(100) { HttpPeer.new(server).write("GET /never HTTP/1.1\r\nHost: a\r\n") }
    10.times { expect(server.get("/other").status).to eq(200) }
  ensure
    peers&.each(&:close)
  end

  # A reader that waits for a while in the middle of 20 MB, and then takes all of it.
  def read_slowly(name)
    HttpPeer.open(server) do |peer|
      peer.write(message("GET /#{name} HTTP/1.1", "Host: a", "Connection: close"))
      peer.read_until(/\r\n\r\n/)
      # The time is what makes the reader a slow one.
      sleep 0.3
      peer.read_to_end
      expect(peer.ending).to eq(:closed)
      HttpResponse.parse(peer.received)
    end
  end

  %w[large watched parts].each do |name|
    it "B-slow-reader sends 20 MB whole to a reader that takes its time (#{name})" do
      expect(read_slowly(name).body.bytesize).to eq(large)
    end
  end

  it "B-gvl background threads run while a slow reader is waited for" do
    %w[watched parts].each do |name|
      read_slowly(name)
      # A tick takes 2 ms, where the machine has time for it; without Ruby's lock there would be none.
      expect(ticks_during(name)).to be > 10
    end
  end

  # Chunks of one byte are sent faster than they can be decoded: there is always more to read.
  it "B-gvl background threads run while 200 MB come in without a pause" do
    part = "1\r\nu\r\n" * 100_000
    server.get("/gap")
    HttpPeer.open(server) do |peer|
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      peer.write(message("POST /gap HTTP/1.1", "Host: a", "Connection: close", "Transfer-Encoding: chunked"))
      335.times { peer.write(part) }
      peer.write("0\r\n\r\n")
      gap = HttpResponse.parse(peer.read_to_end).body.to_f
      # Ruby lets a thread have its lock for 0.1 s. Without a pause the gap is as long as the whole request.
      expect(gap).to be < [0.4, (Process.clock_gettime(Process::CLOCK_MONOTONIC) - began) * 0.75].max
    end
  end

  it "B-gvl background threads run while nobody is there" do
    before = server.get("/ticks").body.to_i
    eventually { server.lines_of("ticks").first.to_i > before + 50 }
  end

  it "B-client-gone a client that goes away mid-response is no trouble" do
    %w[large watched parts].each do |name|
      HttpPeer.open(server) do |peer|
        peer.write(message("GET /#{name} HTTP/1.1", "Host: a"))
        peer.read_until(/\r\n\r\n/)
        peer.abort
      end
      expect_worker_alive
    end
  end

  it "B-client-gone a client that closes mid-response, in good order, is no trouble" do
    %w[large watched parts].each do |name|
      server.connect do |socket|
        socket.write(message("GET /#{name} HTTP/1.1", "Host: a"))
        socket.readpartial(1000)
      end
      expect_worker_alive
    end
  end

  it "B-client-gone a client that goes away while the app works is no trouble" do
    peers = Array.new(3) { HttpPeer.new(server) }
    peers.first.write(message("GET /gate HTTP/1.1", "Host: a"))
    eventually { journal.lines.include?("in the app") }
    peers[1].write(message("GET / HTTP/1.1", "Host: a"))
    peers[2].write("GET / HT")
    peers.each(&:abort)
    server.write("go", "")
    expect_worker_alive
  end

  it "B-client-gone half-closing after the request is no reason to withhold the response" do
    bytes, ending = HttpPeer.exchange(server, message("GET / HTTP/1.1", "Host: a", "Connection: close"), half_close: true)
    expect(HttpResponse.parse(bytes).status).to eq(200)
    expect(ending).to eq(:closed)
  end
end

RSpec.describe "B-pace the option Timeout" do
  before(:context) { serve(HttpApps.ru(:pacing), options: { "Timeout" => 1 }) }

  it "B-slow-reader a reader that takes nothing at all is cut off, and others are served again" do
    HttpPeer.open(server) do |peer|
      peer.write(message("GET /large HTTP/1.1", "Host: a", "Connection: close"))
      peer.read_until(/\r\n\r\n/)
      expect(server.get("/other").status).to eq(200)
      eventually { peer.cut_off? }
      peer.read_to_end
      expect(peer.received.bytesize).to be < HttpApps::Pacing::LARGE
      expect(peer.ending).to eq(:reset)
    end
  end

  it "B-slow-reader a reader that takes a little all the time is not cut off" do
    HttpPeer.open(server) do |peer|
      peer.write(message("GET /parts HTTP/1.1", "Host: a", "Connection: close"))
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      reached = 0
      while Process.clock_gettime(Process::CLOCK_MONOTONIC) - began < 1.5
        reached += 500_000
        peer.read_until_size(reached)
        # The pauses are what makes the reader a slow one.
        sleep 0.05
      end
      expect(HttpResponse.parse(peer.read_to_end).body.bytesize).to eq(HttpApps::Pacing::LARGE)
    end
  end
end

RSpec.describe "B-pace a Timeout past all numbers" do
  before(:context) { serve(HttpApps.ru(:pacing), options: { "Timeout" => "1e30" }) }

  it "B-pace is a long one: nobody is refused for it" do
    HttpPeer.open(server) do |peer|
      peer.write("GET / HTTP/1.1\r\n")
      expect(server.get("/other").status).to eq(200)
      peer.write("Host: a\r\nConnection: close\r\n\r\n")
      expect(HttpResponse.parse(peer.read_to_end).status).to eq(200)
    end
    expect(read_whole.bytesize).to eq(HttpApps::Pacing::LARGE)
  end

  # To a reader that has to be waited for.
  def read_whole
    HttpPeer.open(server) do |peer|
      peer.write(message("GET /large HTTP/1.1", "Host: a", "Connection: close"))
      peer.read_until(/\r\n\r\n/)
      HttpResponse.parse(peer.read_to_end).body
    end
  end
end
