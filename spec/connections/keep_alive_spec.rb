# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/kept_helpers"

RSpec.describe "C4 Keep-alive" do
  describe "by the rules of RFC 9112, section 9.3" do
    before(:context) { serve_kept }

    # What becomes of the connection after a request: [Connection of the response, whether another request is answered].
    def outcome(path, *lines, **keywords)
      one = peer
      response = one.get(path, *lines, **keywords)
      [response.headers["Connection"], !one.anything_within?(0.05) && one.get("/pid").status == 200]
    end

    it "an HTTP/1.1 connection is kept, without a word" do
      expect(outcome("/pid")).to eq([nil, true])
    end

    it "one connection carries any number of requests, in one worker" do
      one = peer
      expect(Array.new(500) { one.get("/pid").body }.uniq).to eq([@worker.to_s])
    end

    [["Connection: close"], ["connection: CLOSE"], ["Connection: foo, close"], ["Connection: keep-alive, close"], ["Connection: foo", "Connection: close"]].each do |lines|
      it "#{lines.inspect} closes the connection, and the response says so" do
        one = peer
        response = one.get("/pid", *lines)
        expect([response.headers["Connection"], one.closed_without_a_word?]).to eq(["close", true])
      end
    end

    [["Connection: closed"], ["Connection: keep-alive"], ["Keep-Alive: timeout=5"], ["Connection: foo"], ["X-Connection: close"]].each do |lines|
      it "#{lines.inspect} keeps it" do
        expect(outcome("/pid", *lines)).to eq([nil, true])
      end
    end

    it "an HTTP/1.0 connection is closed" do
      one = peer
      expect([one.get("/pid", version: "1.0").headers["Connection"], one.closed_without_a_word?]).to eq(["close", true])
    end

    ["Connection: keep-alive", "Connection: Keep-Alive", "Connection: foo, keep-alive"].each do |line|
      it "an HTTP/1.0 connection is kept when #{line.inspect} asks for it, and the response says so" do
        one = peer
        3.times { expect(one.get("/pid", line, version: "1.0").headers["Connection"]).to eq("keep-alive") }
        expect(one.get("/pid", version: "1.0").headers["Connection"]).to eq("close")
        expect(one).to be_closed_without_a_word
      end
    end

    it "close beats keep-alive on HTTP/1.0, too" do
      one = peer
      expect(one.get("/pid", "Connection: keep-alive, close", version: "1.0").headers["Connection"]).to eq("close")
      expect(one).to be_closed_without_a_word
    end

    it "the app closes the connection by Connection: close" do
      one = peer
      expect(one.get("/close").headers.all("Connection")).to eq(["close"])
      expect(one).to be_closed_without_a_word
    end

    %w[204 304 404 500].each do |code|
      it "a response with status #{code} keeps it" do
        one = peer
        expect(one.get("/status/#{code}").status).to eq(code.to_i)
        expect(one.get("/pid").body).to eq(@worker.to_s)
      end
    end

    it "HEAD keeps it, and no body follows" do
      one = peer
      expect(one.get("/length/1000/1000", verb: "HEAD").headers["Content-Length"]).to eq("1000")
      expect(one.get("/each/3/5", verb: "HEAD").status).to eq(200)
      expect(one.get("/pid").body).to eq(@worker.to_s)
    end

    it "a body of unknown length is sent in chunks on HTTP/1.1, and the connection kept" do
      one = peer
      response = one.get("/each/3/5")
      expect([response.headers["Transfer-Encoding"], response.headers["Content-Length"], response.body]).to eq(["chunked", nil, "x" * 15])
      expect(one.get("/each/0/0").body).to eq("")
      expect(one.get("/pid").body).to eq(@worker.to_s)
    end

    it "a body of unknown length ends with the connection on HTTP/1.0" do
      one = peer
      response = one.get("/each/3/5", "Connection: keep-alive", version: "1.0")
      expect([response.headers["Transfer-Encoding"], response.headers["Connection"], response.body, one.ending]).to eq([nil, "close", "x" * 15, :closed])
    end

    it "a bad request ends the connection" do
      one = peer.tap { |kept| kept.get("/pid") }
      one.write("GET /pid HTTP/1.1\r\n\r\n")
      expect([one.answer.status, one.closed_without_a_word?]).to eq([400, true])
    end

    it "an app that raises is answered for, and the connection closed" do
      one = peer.tap { |kept| kept.get("/pid") }
      expect([one.get("/raise").status, one.closed_without_a_word?]).to eq([500, true])
      expect_worker_alive
    end

    it "an empty line before a request means nothing" do
      one = peer
      one.get("/pid")
      one.write("\r\n")
      expect(one.get("/pid").body).to eq(@worker.to_s)
    end
  end

  describe "when a response's length is not what its head says" do
    before(:context) { serve_kept }

    %w[array each].each do |form|
      it "too short a body (#{form}) is shown by a reset" do
        one = peer.ask("/length/10/7/#{form}")
        one.read_to_end
        expect([one.received[/x*\z/].size, one.ending]).to eq([7, :reset]).or eq([0, :reset])
      end

      it "too long a body (#{form}) is cut to what was announced, and the connection closed" do
        one = peer.ask("/length/7/10/#{form}")
        one.ask("/pid")
        one.read_to_end
        expect([one.received[/\r\n\r\n(.*)\z/m, 1], one.ending]).to eq(["x" * 7, :closed])
      end

      it "the right length (#{form}) keeps it" do
        one = peer
        expect(one.get("/length/7/7/#{form}").body).to eq("x" * 7)
        expect(one.get("/pid").status).to eq(200)
      end
    end
  end

  describe "as the options say" do
    it "KeepAlive=false closes each connection" do
      serve_kept(options: { KeepAlive: false })
      one = peer
      expect([one.get("/pid").headers["Connection"], one.closed_without_a_word?]).to eq(["close", true])
    end

    it "KeepAliveTimeout is how long a connection may be idle, whatever it was before" do
      serve_kept(options: { KeepAliveTimeout: 1.2 })
      one = peer
      # Longer than that altogether.
      5.times do
        one.get("/pid")
        expect(one.anything_within?(0.3)).to be(false)
      end
      one.get("/pid")
      expect(seconds { expect(one).to be_closed_without_a_word }).to be_between(1.1, 10)
    end

    it "KeepAliveTimeout counts while the worker is busy" do
      serve_kept(options: { KeepAliveTimeout: 0.5 })
      one = peer.tap { |kept| kept.get("/pid") }
      occupy("a")
      expect(one).to be_closed_without_a_word
      open_gate("a")
    end

    it "KeepAliveTimeout loses no request that was there in time, though the worker did not get to read it" do
      timeout = GcMode.patient(0.5)
      serve_kept(options: { KeepAliveTimeout: timeout })
      peers = kept_peers(5)
      server.signal(:STOP, to: @worker)
      eventually { File.read("/proc/#{@worker}/stat").include?(") T ") }
      peers.each { |one| one.ask("/pid") }
      expect(peers.first.anything_within?(timeout + 0.2)).to be(false)
      server.signal(:CONT, to: @worker)
      expect(peers.map { |one| one.answer.body.to_i }).to all(eq(@worker))
    end

    it "PUMA_PERSISTENT_TIMEOUT is its default, and the option beats it" do
      serve_kept(env: { PUMA_PERSISTENT_TIMEOUT: "1" })
      one = peer.tap { |kept| kept.get("/pid") }
      expect(seconds { expect(one).to be_closed_without_a_word }).to be_between(0.8, 20)
      serve_kept(options: { KeepAliveTimeout: 60 }, env: { PUMA_PERSISTENT_TIMEOUT: "1" })
      one = peer.tap { |kept| kept.get("/pid") }
      expect(one.anything_within?(2)).to be(false)
    end

    it "KeepAliveRequests is how many requests a connection may carry; the last response says so" do
      serve_kept(options: { KeepAliveRequests: 3 })
      one = peer
      expect(Array.new(3) { one.get("/pid").headers["Connection"] }).to eq([nil, nil, "close"])
      expect(one).to be_closed_without_a_word
    end

    it "KeepAliveRequests counts on when another worker goes on with the connection" do
      serve_kept(workers: 2, options: { KeepAliveRequests: 4 })
      one = peer
      worker = one.get("/pid").body.to_i
      server.signal(:TERM, to: worker)
      server.await_workers(2) { |found| !found.include?(worker) }
      expect(Array.new(3) { one.get("/pid").headers["Connection"] }).to eq([nil, nil, "close"])
      expect(one).to be_closed_without_a_word
    end

    it "a client that sends more than a connection may carry gets all the answers that are due, not a reset" do
      serve_kept(options: { KeepAliveRequests: 3 })
      occupy("a")
      one = peer
      one.write(KeptPeer.request("/array/100000") * 2)
      open_gate("a")
      first = one.answer
      one.write(KeptPeer.request("/gate/b"))
      await_gate("b")
      # Unread at the time of the close.
      one.write(KeptPeer.request("/array/100000") * 5)
      open_gate("b")
      expect([first, one.answer, one.answer].map(&:status)).to eq([200] * 3)
      expect(one).to be_closed_without_a_word
      expect(calls_of("/array/100000")).to eq(2)
    end
  end
end
