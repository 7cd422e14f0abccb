# frozen_string_literal: true

require "timeout"

RSpec.describe "C4 Hand-over", once: "sockets of the engine" do
  # Requests by name, each with whether they have a body.
  bodies = { "64 KB" => 64_000, "5 MB" => 5_000_000 }
  forms = bodies.flat_map do |name, size|
    body = Random.new(size).bytes(size)
    [
      ["#{name} of a known length", KeptPeer.request("/body", verb: "POST", body: body), body],
      ["#{name} in chunks", KeptPeer.chunked("/body", *body.scan(/.{1,30000}/mn)), body]
    ]
  end
  forms.unshift(["nothing", KeptPeer.request("/body", verb: "POST", body: ""), ""], ["a few bytes", KeptPeer.request("/body", verb: "POST", body: "abc"), "abc"])

  def expect_answer(one, body, worker)
    pid, size, digest = one.answer.body.split
    expect([pid.to_i, size.to_i, digest]).to eq([worker, body.bytesize, Digest::MD5.hexdigest(body)])
  end

  # Asks for something that takes until the gate is opened, and gives the worker that is busy with it: that of this connection, unless it
  # was kept from its work just then.
  def ask_for_long(one, kind, gate)
    one.ask("/#{kind}/#{gate}")
    eventually(20) { worker_of("/#{kind}/#{gate}") }
  end

  # The worker that is not the given one.
  def other(worker) = (server.workers - [worker]).first

  %i[gate burn].each do |kind|
    describe "of a kept connection whose worker is busy (#{kind == :gate ? "asleep in Ruby" : "with Ruby's lock in its hand"})" do
      before { serve_kept(workers: 2) }

      it "goes to the idle worker at once, and back again when that one is busy" do
        (occupier, one, two), = peers_of_one_worker(3)
        first = ask_for_long(occupier, kind, "a")
        [one, two].each { |each| expect(each.get("/pid").body.to_i).to eq(other(first)) }
        open_gate("a")
        occupier.answer
        second = ask_for_long(one, kind, "b")
        expect(two.get("/pid").body.to_i).to eq(other(second))
        open_gate("b")
        expect(one.answer.body.to_i).to eq(second)
      end

      (kind == :gate ? forms : forms.last(2)).each do |name, request, body|
        it "brings requests with #{name} along, whether nothing, a part of the head or half of all was read before" do
          (occupier, *ones), = peers_of_one_worker(4)
          cuts = [0, 10, request.bytesize / 2]
          ones.zip(cuts) { |one, cut| one.write(request.byteslice(0, cut)) }
          occupier.get("/pid")
          busy = ask_for_long(occupier, kind, "a")
          ones.zip(cuts) do |one, cut|
            one.write(request.byteslice(cut..))
            expect_answer(one, body, other(busy))
          end
          open_gate("a")
          expect(occupier.answer.body.to_i).to eq(busy)
          # The connections go on where they are.
          expect([ones.map { |one| one.get("/pid").status }, calls_of("/body")]).to eq([[200] * 3, 3])
        end
      end

      it "is first come, first served when all workers are busy" do
        ones = kept_peers(8)
        busy = occupy("a", "b", kind: kind).keys
        before = settled_sockets(*busy)
        ones.each.with_index(1) do |one, number|
          one.ask("/status/#{200 + number}")
          # Each is in the queue before the next one comes: no worker has it any more.
          eventually { sockets(*busy) == before - number }
        end
        open_gate("b")
        expect(ones.map { |one| one.answer.status }).to eq((201..208).to_a)
        expect(calls.grep(%r{/status/})).to eq((201..208).map { |code| "/status/#{code}" })
        open_gate("a")
      end
    end
  end

  [1, 5].each do |threads|
    it "keeps new clients and kept ones in one order while all of #{threads} thread(s) are busy (D3)" do
      serve_kept(options: { MaxThreads: threads })
      kept = kept_peers(4)
      gates = Array.new(threads) { |number| "g#{number}" }
      occupy(*gates)
      ones = (201..208).map do |status|
        (status.odd? ? peer : kept.shift).ask("/status/#{status}").tap { |one| eventually { one.taken? } }
      end
      open_gate(gates.shift)
      expect(ones.map { |one| one.answer.status }).to eq((201..208).to_a)
      expect(calls.grep(%r{/status/})).to eq((201..208).map { |code| "/status/#{code}" })
      gates.each { |gate| open_gate(gate) }
    end
  end

  it "has a new client answered by whichever worker is free first, though another one has accepted it" do
    serve_kept(workers: 2)
    occupy("a", "b")
    ones = Array.new(3) { peer.ask("/status/201") }
    ones.each { |one| eventually { one.taken? } }
    open_gate("b")
    expect(ones.map { |one| one.answer.status }).to eq([201] * 3)
    open_gate("a")
  end

  it "leaves nothing in the queue to a worker that was killed, when the server stops" do
    serve_kept(workers: 2, options: { ErrRespawnInterval: 600 })
    server.signal(:KILL, to: server.workers.first)
    worker, = server.await_workers(1)
    ones = kept_peers(3)
    occupy("a")
    before = settled_sockets(worker)
    ones.each { |one| one.ask("/status/201") }
    eventually { sockets(worker) == before - 3 }
    server.signal(:TERM)
    open_gate("a")
    expect([ones.map { |one| one.answer.status }, server.wait.exitstatus]).to eq([[201] * 3, 0])
  end

  it "does not happen with HandOver=false" do
    serve_kept(workers: 2, options: { HandOver: false })
    (occupier, one), worker = peers_of_one_worker(2)
    occupier.ask("/gate/a")
    eventually(20) { worker_of("/gate/a") }
    one.ask("/pid")
    expect(one.anything_within?(0.5)).to be(false)
    open_gate("a")
    expect(one.answer.body.to_i).to eq(worker)
  end

  describe "through faults" do
    # Idle for as long as it takes to connect 700 clients, also where the garbage collector never rests.
    before { serve_kept(workers: 2, options: { KeepAliveTimeout: 600 }) }

    # Clients whose connections are with no worker: both are busy, and have put them into the queue.
    def queued(count)
      ones = kept_peers(count)
      busy = occupy("a", "b")
      free = settled_sockets(*busy.keys) - count
      ones.each.with_index { |one, index| one.ask("/status/#{201 + (index % 90)}") }
      eventually(20) { sockets(*busy.keys) == free }
      [ones, busy]
    end

    it "connections in the queue outlast the workers that put them there, and each request is run once" do
      ones, busy = queued(10)
      busy.each_key { |pid| server.signal(:KILL, to: pid) }
      expect(ones.map { |one| one.answer.status }).to eq((201..210).to_a)
      expect(calls.grep(%r{/status/}).tally.values).to eq([1] * 10)
      expect(ones.map { |one| one.get("/pid").status }.uniq).to eq([200])
    end

    it "connections in the queue are served when the server is told to stop" do
      ones, = queued(10)
      server.signal(:TERM)
      open_gate("a")
      open_gate("b")
      expect(ones.map { |one| one.answer.status }).to eq((201..210).to_a)
      expect([ones.map(&:closed_without_a_word?).uniq, server.wait.exitstatus]).to eq([[true], 0])
    end

    it "more requests than the queue holds are all answered, and each run once" do
      ones = kept_peers(700)
      occupy("a", "b")
      ones.each { |one| one.ask("/array/10") }
      open_gate("a")
      open_gate("b")
      expect([ones.map { |one| one.answer.status }.uniq, calls_of("/array/10")]).to eq([[200], 700])
      expect(ones.map { |one| one.get("/pid").status }.uniq).to eq([200])
    end
  end
end
