# frozen_string_literal: true

RSpec.describe "C4 Keep-alive", once: "bytes and timers of the engine" do
  describe "by the rules of RFC 9112, section 9.3" do
    before(:context) { serve_kept }

    closing = ["close", "foo, close", "keep-alive, close", "CLOSE"].map { |value| ["1.1", ["Connection: #{value}"], "close"] }
    keeping = [[], ["Connection: closed"], ["Connection: keep-alive"], ["Keep-Alive: timeout=5"], ["Connection: foo"], ["X-Connection: close"]].map { |lines| ["1.1", lines, nil] }
    asking = ["keep-alive", "Keep-Alive", "foo, keep-alive"].map { |value| ["1.0", ["Connection: #{value}"], "keep-alive"] }
    [*closing, ["1.1", ["Connection: foo", "Connection: close"], "close"], *keeping, *asking, ["1.0", [], "close"], ["1.0", ["Connection: keep-alive, close"], "close"]]
      .each do |version, lines, connection|
        it "HTTP/#{version} with #{lines.inspect} is answered with #{connection.inspect}, and the connection #{connection == "close" ? "closed" : "kept"}" do
          one = peer
          expect(one.get("/pid", *lines, version: version).headers["Connection"]).to eq(connection)
          next expect(one).to(be_closed_without_a_word) if connection == "close"

          expect([one.anything_within?(0.05), one.get("/pid").status]).to eq([false, 200])
        end
      end

    it "one connection carries any number of requests, in one worker, with an empty line before some of them" do
      one = peer
      expect(Array.new(500) { |nr| (nr % 9).zero? && one.write("\r\n"); one.get("/pid").body }.uniq).to eq([@worker.to_s])
    end

    it "responses with any status, and to HEAD, keep it" do
      one = peer
      [204, 304, 404, 500].each { |code| expect(one.get("/status/#{code}").status).to eq(code) }
      expect(one.get("/length/1000/1000", verb: "HEAD").headers["Content-Length"]).to eq("1000")
      expect([one.get("/each/3/5", verb: "HEAD").status, one.get("/pid").body]).to eq([200, @worker.to_s])
    end

    it "a body of unknown length is sent in chunks on HTTP/1.1, and the connection kept" do
      one = peer
      response = one.get("/each/3/5")
      expect([response.headers["Transfer-Encoding"], response.headers["Content-Length"], response.body]).to eq(["chunked", nil, "x" * 15])
      expect([one.get("/each/0/0").body, one.get("/pid").body]).to eq(["", @worker.to_s])
    end
  end

  describe "as the options say" do
    it "KeepAliveTimeout is how long a connection may be idle, whatever it was before" do
      timeout = GcMode.patient(1.5)
      serve_kept(options: { KeepAliveTimeout: timeout })
      one = peer
      # Longer than that altogether.
      5.times do
        one.get("/pid")
        expect(one.anything_within?(timeout / 4)).to be(false)
      end
      expect(seconds { one.get("/pid") && expect(one).to(be_closed_without_a_word) }).to be > timeout * 0.9
    end

    it "KeepAliveTimeout counts while the worker is busy" do
      serve_kept(options: { KeepAliveTimeout: 0.5 })
      one = peer.tap { |kept| kept.get("/pid") }
      occupy("a")
      expect(one).to be_closed_without_a_word
      open_gate("a")
    end

    it "KeepAliveTimeout loses no request that was there in time, though the worker did not get to read it" do
      timeout = GcMode.patient(1.5)
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
      expect(seconds { expect(kept_peers(1).first).to be_closed_without_a_word }).to be > 0.8
      serve_kept(options: { KeepAliveTimeout: 60 }, env: { PUMA_PERSISTENT_TIMEOUT: "1" })
      expect(kept_peers(1).first.anything_within?(1.5)).to be(false)
    end

    { "KeepAlive=false closes each connection" => [{ KeepAlive: false }, ["close"]],
      "KeepAliveRequests is how many requests a connection may carry; the last one says so" => [{ KeepAliveRequests: 3 }, [nil, nil, "close"]] }
      .each do |what, (options, said)|
      it what do
        serve_kept(options: options)
        one = peer
        expect(said.map { one.get("/pid").headers["Connection"] }).to eq(said)
        expect(one).to be_closed_without_a_word
      end
    end

    it "KeepAlive=false answers the first of several requests, in one packet or in two" do
      serve_kept(options: { KeepAlive: false })
      first, second = KeptPeer.request("/body", verb: "POST", body: "abc"), KeptPeer.request("/status/404")
      [[first + second], [first, second]].each do |packets|
        one = peer
        packets.each { |packet| one.write(packet) }
        one.read_to_end
        expect([HttpResponse.all(one.received).map(&:status), one.ending]).to eq([[200], :closed])
      end
      expect(calls_of("/status/404")).to eq(0)
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
