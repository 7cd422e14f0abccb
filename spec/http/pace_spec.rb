# frozen_string_literal: true

require "support/http_apps/pacing"

RSpec.describe "B-pace clients that are slow, or gone", once: "timers and bytes of the engine" do
  before(:context) { serve(HttpApps.ru(:pacing), options: { "MaxResponseSpool" => 0 }) }

  large = HttpApps::Pacing::LARGE
  request = "GET /dribble HTTP/1.1\r\nHost: a\r\nUser-Agent: one that is in no hurry\r\nConnection: close\r\n\r\n"

  # What the app has noted about the body of that name.
  def ticks_during(name) = eventually { journal.lines.reverse.find { |line| line.start_with?("#{name} ticks") } }.split.last.to_i

  it "B-slow-head serves others while many heads come in byte by byte, and each of those in the end" do
    peers = Array.new(50) { HttpPeer.new(server) }
    request.each_char.with_index do |byte, index|
      peers.each { |peer| peer.write(byte) }
      expect(server.get("/other").status).to eq(200) if (index % 20).zero?
    end
    expect(peers.map { |peer| HttpResponse.parse(peer.read_to_end).status }).to all(eq(200))
  end

  # A reader that waits for a while in the middle of 20 MB, and then takes all of it.
  def read_slowly(name)
    HttpPeer.open(server) do |peer|
      peer.write(message("GET /#{name} HTTP/1.1", "Host: a", "Connection: close"))
      peer.read_until(/\r\n\r\n/)
      # The time is what makes the reader a slow one.
      sleep 1
      peer.read_to_end
      expect(peer.ending).to eq(:closed)
      HttpResponse.parse(peer.received)
    end
  end

  %w[large watched parts].each do |name|
    it "B-slow-reader sends 20 MB whole to a reader that takes its time, and background threads run meanwhile (#{name})" do
      expect(read_slowly(name).body.bytesize).to eq(large)
      # A tick takes 2 ms, where the machine has time for it; without Ruby's lock there would be none.
      expect(ticks_during(name)).to be > 10 unless name == "large"
    end
  end

  # Chunks of one byte are sent faster than they can be decoded: there is always more to read.
  it "B-gvl background threads run while 200 MB come in without a pause", alone: "tenths of a second" do
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
end

RSpec.describe "B-pace the option Timeout", once: "timers of the engine" do
  timeout = GcMode.patient(1.5)
  before(:context) { serve(HttpApps.ru(:pacing), options: { "Timeout" => timeout }) }

  it "B-slow-reader a reader that takes nothing at all is cut off, and others are served again" do
    HttpPeer.open(server) do |peer|
      peer.write(message("GET /large HTTP/1.1", "Host: a", "Connection: close"))
      peer.read_until(/\r\n\r\n/)
      expect(server.get("/other").status).to eq(200)
      eventually { peer.cut_off? }
      peer.read_to_end
      expect([peer.received.bytesize, peer.ending]).to match([be < HttpApps::Pacing::LARGE, :reset])
    end
  end

  it "B-slow-reader a reader that takes a little all the time is not cut off" do
    HttpPeer.open(server) do |peer|
      peer.write(message("GET /parts HTTP/1.1", "Host: a", "Connection: close"))
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      reached = 0
      while Process.clock_gettime(Process::CLOCK_MONOTONIC) - began < timeout * 1.5
        reached += (HttpApps::Pacing::LARGE * 0.05 / (timeout * 2)).to_i
        peer.read_until_size(reached)
        # The pauses are what makes the reader a slow one.
        sleep 0.05
      end
      expect(HttpResponse.parse(peer.read_to_end).body.bytesize).to eq(HttpApps::Pacing::LARGE)
    end
  end
end
