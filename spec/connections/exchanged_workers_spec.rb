# frozen_string_literal: true

RSpec.describe "C4 When a worker is exchanged" do
  # All workers are new after the block, and no old one is left.
  def exchange = server.renew

  # Again and again, but not for ever.
  def exchange_until_answered(peers)
    eventually do
      exchange
      peers.all? { |one| one.anything_within?(0.01) }
    end
  end

  { "an Array" => "/array/8000000", "a file" => "/file/8000000" }.each do |name, path|
    it "a client that takes #{name} slowly gets all of it, and its worker does not wait for it" do
      serve_kept
      one = peer(slow: true).ask(path)
      # The head has left: it says that the connection is kept.
      one.read_until(/\r\n\r\n/)
      exchange
      expect(one.answer.body.bytesize).to eq(8_000_000)
      expect([one.get("/pid").body.to_i]).to eq(server.workers)
    end
  end

  describe "while all the others are in the app, a client that takes a response slowly gets all of it" do
    # Its worker, once it has taken a part of the response.
    def worker_of_slow(one)
      one.read_until(/\r\n\r\n/)
      worker_of("/array/8000000")
    end

    def expect_the_rest(one, gate)
      expect(one.answer.body.bytesize).to eq(8_000_000)
      expect(calls).not_to include("/pid")
      open_gate(gate)
      expect(server.workers).to include(one.get("/pid").body.to_i)
    end

    it "when its worker stops" do
      serve_kept
      one = peer(slow: true).ask("/array/8000000")
      old = worker_of_slow(one)
      expect(occupy("ends").keys).to eq([old])
      server.signal(:HUP)
      fresh = server.await_workers(2) - [old]
      expect(occupy("stays").keys).to eq(fresh)
      open_gate("ends")
      expect_the_rest(one, "stays")
      server.await_workers(1) { |found| found == fresh }
    end

    it "when its worker ends in the middle of a request" do
      serve_kept(workers: 2, options: { "ErrRespawnInterval" => 600 })
      one = peer(slow: true).ask("/array/8000000")
      old = worker_of_slow(one)
      gates = occupy("a", "b")
      server.write(gates.fetch(old), "exit")
      server.await_workers(1)
      expect_the_rest(one, gates.except(old).values.first)
    end
  end

  it "a client that takes a response slowly gets all of it when the whole server stops, even if it takes more than 5 s", once: "timers of the engine" do
    serve_kept
    one = peer(slow: true).ask("/array/8000000")
    eventually { calls_of("/array/8000000") == 1 }
    server.signal(:TERM)
    # It goes on to read, little by little.
    11.times { |turn| one.read_until_size((turn + 1) * 1_000) && sleep(0.5) }
    expect([one.answer.body.bytesize, server.wait.exitstatus]).to eq([8_000_000, 0])
  end

  it "a request that follows a response which is still being sent is answered" do
    serve_kept
    one = peer(slow: true).ask("/array/8000000").ask("/body", verb: "POST", body: "next")
    one.read_until(/\r\n\r\n/)
    exchange
    expect(one.answer.body.bytesize).to eq(8_000_000)
    expect(one.answer.body).to end_with(" 4 #{Digest::MD5.hexdigest("next")}")
  end

  it "a client that sends a body slowly is not refused, and its worker does not wait for it" do
    serve_kept
    bodies = [60_000, 900_000, 3_000_000].map { |size| Random.new(size).bytes(size) }
    requests = bodies.flat_map do |body|
      [KeptPeer.request("/body", verb: "POST", body: body), KeptPeer.chunked("/body", *body.scan(/.{1,30000}/mn))]
    end
    # In the head, in the body, in the last line.
    ones = requests.flat_map { |bytes| [20, bytes.bytesize / 3, bytes.bytesize - 3].map { |cut| [peer, bytes, cut] } }
    ones.each { |one, bytes, cut| one.write(bytes[0...cut]) }
    expect(server.get("/pid").status).to eq(200)
    exchange
    exchange
    ones.each { |one, bytes, cut| one.write(bytes[cut..]) }
    expected = bodies.flat_map { |body| ["#{body.bytesize} #{Digest::MD5.hexdigest(body)}"] * 6 }
    expect(ones.map { |one, *| one.answer.body.split(" ", 2).last }).to eq(expected)
  end

  it "KeepAliveTimeout, HeaderTimeout and BodyTimeout go on, however many workers have had the connection", once: "timers of the engine" do
    # The others have to begin before the idle one's time is over.
    serve_kept(options: { KeepAliveTimeout: 5, HeaderTimeout: 2, BodyTimeout: 2 })
    idle, *ones = kept_peers(3)
    took = seconds do
      ones[0].write("GET /pid HTTP/1.1\r\n")
      ones[1].write(KeptPeer.request("/body", verb: "POST", body: "body")[0...-1])
      exchange_until_answered([idle, *ones])
    end
    expect([took, ones.map { |one| one.answer.status }, idle.closed_without_a_word?]).to match([be > 1.9, [408, 408], true])
  end
end
