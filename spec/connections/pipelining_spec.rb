# frozen_string_literal: true

require "digest"
require_relative "../spec_helper"
require_relative "../support/kept_helpers"

RSpec.describe "C4 Pipelining", once: "the order of sockets" do
  # Requests of every kind of body, with what /body answers for each.
  def mixture(random, count)
    Array.new(count) { |index| kinds(random, index).sample(random: random).call }
  end

  def kinds(random, index)
    body = random.bytes([0, 1, 300, 20_000, 70_000].sample(random: random))
    large = random.bytes(1_100_000 + random.rand(10_000))
    [
      -> { [KeptPeer.request("/pid?#{index}"), @worker.to_s] },
      -> { [KeptPeer.request("/body", verb: "POST", body: body), told(body)] },
      -> { [KeptPeer.chunked("/body", *[body[0, 10], body[10..]].compact.reject(&:empty?)), told(body)] },
      -> { index % 5 == 4 ? [KeptPeer.request("/body", verb: "POST", body: large), told(large)] : [KeptPeer.request("/pid"), @worker.to_s] },
      -> { index % 5 == 3 ? [KeptPeer.chunked("/body", *large.scan(/.{1,50000}/mn)), told(large)] : [KeptPeer.request("/each/2/3"), "xxxxxx"] }
    ]
  end

  def told(body)
    "#{@worker} #{body.bytesize} #{Digest::MD5.hexdigest(body)}"
  end

  # Writes the bytes in pieces that end anywhere, while another thread reads the answers.
  def send_cut(one, bytes, random)
    Thread.new do
      until bytes.empty?
        size = [1, 7, 100, 5_000, 200_000].sample(random: random)
        one.write(bytes.slice!(0, random.rand(1..size)))
        sleep 0.001 if random.rand < 0.05
      end
    end
  end

  describe "of requests of all kinds" do
    before(:context) { serve_kept }

    3.times do |seed|
      it "is answered in order, wherever the stream is cut (#{seed})" do
        random = Random.new(seed)
        requests = mixture(random, 25)
        one = peer
        writer = send_cut(one, requests.map(&:first).join, random)
        expect(requests.map { one.answer.body }).to eq(requests.map(&:last))
        writer.join
        expect(one.anything_within?(0.05)).to be(false)
      end
    end

    it "is answered in order around responses that take a while to read" do
      one = peer(slow: true)
      one.write(KeptPeer.request("/array/3000000") + KeptPeer.request("/body", verb: "POST", body: "abc") + KeptPeer.request("/each/30/100000") + KeptPeer.request("/pid"))
      expect(Array.new(4) { one.answer.body.bytesize }).to eq([3_000_000, told("abc").bytesize, 3_000_000, @worker.to_s.bytesize])
    end

    it "ends where a request says that it is the last, and what follows is not heard" do
      one = peer
      one.write(KeptPeer.request("/pid") + KeptPeer.request("/pid", "Connection: close") + KeptPeer.request("/status/404"))
      one.read_to_end
      expect([HttpResponse.all(one.received).map(&:status), one.ending, calls_of("/status/404")]).to eq([[200, 200], :closed, 0])
    end

    it "ends at a request that is wrong, after the answers to those before it" do
      one = peer
      one.write("#{KeptPeer.request("/pid")}#{KeptPeer.request("/body", verb: "POST", body: "a")}GARBAGE\r\n\r\n#{KeptPeer.request("/status/410")}")
      expect(Array.new(3) { one.answer.status }).to eq([200, 200, 400])
      expect([one.closed_without_a_word?, calls_of("/status/410")]).to eq([true, 0])
    end

    it "is answered to the end for a client that ends its sending after it" do
      one = peer
      one.write(KeptPeer.request("/pid") * 20).finish_sending
      one.read_to_end
      expect(HttpResponse.all(one.received).size).to eq(20)
    end

    it "costs nothing while the client does not take the answer and more is there to read", alone: "CPU seconds" do
      one = peer(slow: true)
      one.write(KeptPeer.request("/array/20000000") + KeptPeer.request("/pid", "X: #{"y" * 900}") * 40)
      eventually { calls_of("/array/20000000") == 1 }
      server.get("/pid")
      expect(one.anything_within?(1) && server.get("/pid").status).to eq(200)
      expect(ProcessTable.cpu_seconds_within(1.5, @worker)).to be < 0.3
    end
  end

  it "of one client keeps nobody else waiting for its end" do
    serve_kept
    occupy("a")
    one = peer
    # More than are served before the worker looks for others.
    one.write(KeptPeer.request("/status/201") * 200)
    others = [peer.ask("/status/404"), peer.ask("/status/410")]
    open_gate("a")
    200.times { one.answer }
    others.each(&:answer)
    expect(calls.index("/status/404")).to be < calls.rindex("/status/201")
    expect(calls.index("/status/410")).to be < calls.rindex("/status/201")
  end

  # Each computes for 0.7 ms: on a kernel with ticks of 4 ms six of them begin in one.
  it "of many clients of one worker is answered by all workers", alone: "a processor for each worker" do
    serve(<<~'RUBY', options: { "MaxWorkers" => 2 })
      now = -> { Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) }
      run lambda { |_env|
        over = now.call + 0.0007
        100.times { |number| number * number } while now.call < over
        [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
      }
    RUBY
    server.await_workers(2)
    ones = Array.new(39) { peer }.group_by { |one| one.get("/").body }.values.max_by(&:size)
    ones.each { |one| one.write(KeptPeer.request("/") * 40) }
    answers = ones.flat_map { |one| Array.new(40) { one.answer.body } }.tally
    expect(answers.size).to eq(2)
    expect(answers.values.min).to be > answers.values.sum / 5
  end
end
