# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/kept_helpers"

RSpec.describe "C4 New clients" do
  # Clients that ask one request after the other on connections that they keep, for as long as the block runs.
  def under_load(count, path)
    over = false
    threads = Array.new(count) do
      one = peer
      Thread.new { one.get(path) until over }
    end
    eventually { calls.size > 3 * count }
    yield
  ensure
    over = true
    threads.each(&:join)
  end

  # Computes for a little longer than a millisecond: too short for the helper thread to step in, long enough that a crowd
  # of kept clients takes a while.
  let(:busy_app) do
    <<~RUBY
      require #{File.expand_path("../support/http_journal", __dir__).inspect}
      journal = HttpJournal.new
      run ->(env) do
        journal.write("\#{Process.pid} \#{env["PATH_INFO"]}")
        over = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.0005
        nil until Process.clock_gettime(Process::CLOCK_MONOTONIC) > over
        [200, { "content-type" => "text/plain" }, ["x"]]
      end
    RUBY
  end

  # Somebody else's file, so that each call takes a while.
  let(:slow_app) do
    <<~RUBY
      require #{File.expand_path("../support/http_journal", __dir__).inspect}
      journal = HttpJournal.new
      run ->(env) { journal.write("\#{Process.pid} \#{env["PATH_INFO"]}"); sleep 0.01; [200, { "content-type" => "text/plain" }, ["x"]] }
    RUBY
  end

  [1, 2].each do |workers|
    it "are served while those that are here already keep #{workers} worker(s) busy without a pause" do
      serve(slow_app, options: { "MaxWorkers" => workers })
      under_load(12, "/kept") do
        times = Array.new(5) { seconds { expect(server.get("/new").status).to eq(200) } }
        # Not much later than any other: 12 of 10 ms each are before it, at most twice.
        expect(times.max).to be < 5
      end
    end
  end

  [1, 2].each do |workers|
    it "come after one round of the kept ones at most with #{workers} worker(s), however few and short those are" do
      serve(busy_app, options: { "MaxWorkers" => workers })
      under_load(24, "/kept") do
        before = Array.new(10) do
          start = calls.size
          expect(server.get("/new").status).to eq(200)
          calls.size - start
        end
        # Each kept client has had its turn two or three times by then, and not hundreds of times.
        expect(before.sort[5]).to be < 24 * 3
        expect(before.max).to be < 24 * 12
      end
    end
  end

  it "are answered though they shut down their sending side with the request" do
    serve(busy_app, options: { "MaxWorkers" => 1 })
    under_load(8, "/kept") do
      answers = Array.new(30) do
        server.connect do |socket|
          # Both leave in one packet: a client that ends its sending later, in the queue, is taken for gone.
          socket.send("GET /new HTTP/1.1\r\nHost: a\r\n\r\n", Socket::MSG_MORE)
          socket.close_write
          socket.read
        end
      end
      expect(answers).to all(start_with("HTTP/1.1 200 "))
    end
  end

  it "are served while others send without a pause, and so are kept ones", once: "the order of sockets" do
    serve_kept(options: { MaxBodySize: 8_000_000_000 }, env: { "TMPDIR" => File.directory?("/dev/shm") ? "/dev/shm" : nil })
    kept = kept_peers(1).first
    over = false
    writers = Array.new(4) do
      upload = peer.write("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000000\r\n\r\n")
      Thread.new { upload.write("x" * 1_000_000) until over }
    end
    times = Array.new(30) { [seconds { expect(server.get("/pid").status).to eq(200) }, seconds { expect(kept.get("/pid").status).to eq(200) }] }
    # Each in its turn: the time must not grow with what the others have sent.
    expect(times.map(&:max).sort[15]).to be < 1
    expect(times.flatten.max).to be < 5
  ensure
    over = true
    writers&.each(&:join)
  end
end
