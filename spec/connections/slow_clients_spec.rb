# frozen_string_literal: true

RSpec.describe "C4 Slow clients", once: "sockets and timers of the engine" do
  # While the only worker is in the app.
  def while_busy
    occupy("busy")
    yield
  ensure
    open_gate("busy")
  end

  describe "while the worker is busy" do
    before { serve_kept }

    it "are read to the end of their requests" do
      body = Random.new(1).bytes(30_000_000)
      known, chunked, dribbling = kept_peers(3)
      while_busy do
        # More than any socket's buffers hold.
        known.write(KeptPeer.request("/body", verb: "POST", body: body))
        chunked.write(KeptPeer.chunked("/body", *body.scan(/.{1,30000}/mn)))
        KeptPeer.request("/status/201").each_char { |byte| dribbling.write(byte) }
        expect(calls).not_to include("/body")
      end
      expect([known, chunked].map { |one| one.answer.body }.uniq).to eq(["#{@worker} #{body.bytesize} #{Digest::MD5.hexdigest(body)}"])
      expect(dribbling.answer.status).to eq(201)
    end

    it "get the rest of their responses" do
      one = peer(slow: true).ask("/array/20000000")
      eventually { calls_of("/array/20000000") == 1 }
      while_busy { expect(one.answer.body.bytesize).to eq(20_000_000) }
      expect(one.get("/pid").body.to_i).to eq(@worker)
    end
  end

  [false, true].each do |busy|
    describe "with a worker that is #{busy ? "busy" : "idle"}" do
      let(:turn) { ->(&block) { busy ? while_busy(&block) : block.call } }

      it "get 408 when a head, the first one too, takes longer than HeaderTimeout, however often a byte of it comes" do
        serve_kept(options: { HeaderTimeout: GcMode.patient(0.35) })
        kept = peer.tap { |one| one.get("/pid") }
        # A client that comes while the worker is busy is not accepted before it has time.
        fresh = peer.write("GET /pid HTTP/1.1\r\n").tap { server.get("/pid") }
        turn.call do
          took = seconds { kept.write("GET /pid HTTP/1.1\r\nX: ") && eventually { kept.write("x").anything_within?(0.1) } }
          expect([kept, fresh].map { |one| [one.answer.status, one.closed_without_a_word?] }).to eq([[408, true]] * 2)
          expect(took).to be > GcMode.patient(0.3)
        end
      end

      it "get 408 when BodyTimeout passes between two pieces of a body, and only then" do
        timeout = GcMode.patient(1.5)
        serve_kept(options: { BodyTimeout: timeout })
        one = peer.tap { |kept| kept.get("/pid") }
        turn.call do
          one.write("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n")
          5.times { one.write("x") && expect(one.anything_within?(timeout / 4)).to(be(false)) }
          expect([one.answer.status, one.closed_without_a_word?]).to eq([408, true])
        end
        expect(calls).not_to include("/body")
      end

      it "are reset when they take nothing of a response for WriteTimeout" do
        serve_kept(options: { WriteTimeout: GcMode.patient(0.3) })
        one = peer(slow: true).ask("/array/20000000")
        eventually { calls_of("/array/20000000") == 1 }
        turn.call do
          eventually { one.cut_off? }
          one.read_to_end
          expect(one.ending).to eq(:reset)
        end
      end
    end
  end

  describe "that read their responses slowly" do
    { "0.5 MB" => 500_000, "50 MB" => 50_000_000 }.each do |name, size|
      it "do not hold up the only worker with #{name} in an Array" do
        serve_kept
        one = peer(slow: true).ask("/array/#{size}")
        eventually { calls_of("/array/#{size}") == 1 }
        expect([server.get("/pid").status, one.answer.body.bytesize, one.get("/pid").status]).to eq([200, size, 200])
      end
    end

    it "hold up the worker with an each-body only beyond the ResponseBuffer, without MaxResponseSpool" do
      serve_kept(options: { ResponseBuffer: 4_000_000, MaxResponseSpool: 0 })
      within = peer(slow: true).ask("/each/30/100000")
      eventually { calls_of("/each/30/100000") == 1 }
      expect(server.get("/pid").status).to eq(200)
      beyond = peer(slow: true).ask("/each/300/100000")
      eventually { calls_of("/each/300/100000") == 1 }
      waiting = peer.ask("/pid")
      expect([waiting.anything_within?(0.5), beyond.answer.body.bytesize]).to eq([false, 30_000_000])
      expect([waiting.answer.status, within.answer.body.bytesize]).to eq([200, 3_000_000])
    end

    it "hold up the worker with an each-body for WriteTimeout and no longer when they take nothing, without MaxResponseSpool" do
      serve_kept(options: { WriteTimeout: 1, MaxResponseSpool: 0 })
      one = peer(slow: true)
      took = seconds do
        one.ask("/each/300/100000")
        eventually { calls_of("/each/300/100000") == 1 }
        expect(peer.get("/pid").status).to eq(200)
      end
      expect(took).to be > 0.9
      one.abort
    end

    it "do not make the worker keep more of an each-body than the ResponseBuffer" do
      serve_kept(options: { ResponseBuffer: 1_000_000 })
      resident = -> { File.read("/proc/#{@worker}/statm").split[1].to_i * 4096 }
      before = resident.call
      one = peer(slow: true).ask("/each/1000/100000")
      eventually { calls_of("/each/1000/100000") == 1 }
      expect([one.anything_within?(1), resident.call - before]).to match([true, be < 30_000_000])
      one.abort
    end
  end
end
