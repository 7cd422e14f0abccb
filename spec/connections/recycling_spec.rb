# frozen_string_literal: true

RSpec.describe "C4 Kept connections", once: "the engine hands connections over" do
  # A kept connection that has nothing to say meanwhile; it is still there afterwards.
  def around_idle_peers(count = 20)
    ones = kept_peers(count)
    yield
    expect(ones.map { |one| one.anything_within?(0) }.uniq).to eq([false])
    expect(ones.map { |one| one.get("/pid").status }.uniq).to eq([200])
  end

  def expect_no_failure(loop) = expect([loop.failures, loop.bodies.size]).to(match([[], be > 20]))

  # What happens to so many workers while clients ask.
  {
    "are exchanged by HUP" => [[1, 2], ->(server, before) { server.renew(before) }],
    "are followed by those of a new master (USR2)" => [[1, 2], lambda { |server, before|
      old = [server.master, *before]
      server.signal(:USR2)
      Eventually.eventually(40) { old.none? { |pid| ProcessTable.alive?(pid) } }
    }],
    "are told to end one after the other" => [[2], lambda { |server, _|
      3.times do
        worker = server.workers.first
        server.signal(:TERM, to: worker)
        server.await_workers(2) { |found| !found.include?(worker) }
      end
    }]
  }.each do |what, (counts, act)|
    counts.each do |count|
      it "keep their place, and lose no request, when #{count} worker(s) #{what}" do
        serve_kept(workers: count)
        before = server.workers
        loop = nil
        around_idle_peers { loop = ClientLoop.kept(server) { act.call(server, before) } }
        expect_no_failure(loop)
      end
    end
  end

  [1, 2].each do |workers|
    it "lose no request when #{workers} worker(s) reach their limit again and again" do
      serve_kept(workers: workers, options: { "MinRequestPerChild" => 10, "MaxRequestPerChild" => 20 })
      expect_no_failure(ClientLoop.kept(server) { |running| eventually(30) { running.bodies.uniq.size > 12 } })
    end
  end

  it "keep their place when there are more of them than the queue holds", :quiet, alone: "others must make room within a tenth of a second" do
    serve_kept(workers: 2)
    around_idle_peers(600) { server.renew }
  end

  it "are told so by the answer that the app is at when the worker is told to end, and closed after it" do
    serve_kept
    one = kept_peers(1).first.ask("/gate/a")
    eventually { calls_of("/gate/a") == 1 }
    server.signal(:TERM, to: @worker)
    open_gate("a")
    expect(one.answer.headers["Connection"]).to eq("close")
    expect(one).to be_closed_without_a_word
  end

  it "are closed in an orderly way, between requests, when the server stops" do
    serve_kept(workers: 2)
    ones = kept_peers(10)
    half = peer.tap { |one| one.get("/pid") }
    half.write("GET /pid HTTP/1.1\r\n")
    server.signal(:TERM)
    expect(ones.map(&:closed_without_a_word?).uniq).to eq([true])
    half.write("Host: a\r\n\r\n")
    expect(half.answer.headers["Connection"]).to eq("close")
    expect(half).to be_closed_without_a_word
    expect(server.wait.exitstatus).to eq(0)
  end
end
