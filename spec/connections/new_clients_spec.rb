# frozen_string_literal: true

RSpec.describe "C4 New clients", once: "the order of sockets" do
  # Clients that ask one request after the other on connections that they keep, for as long as the block runs.
  def under_load(count, path)
    over = false
    threads = Array.new(count) { peer.then { |one| Thread.new { one.get(path) until over } } }
    eventually { calls.size > 3 * count }
    yield
  ensure
    over = true
    threads.each(&:join)
  end

  # Computes for a little longer than a millisecond: too short for the helper thread to step in, long enough that a crowd
  # of kept clients takes a while.
  let(:busy_app) { <<~RUBY }
    require #{File.expand_path("../support/http_journal", __dir__).inspect}
    journal = HttpJournal.new
    run ->(env) do
      journal.write("\#{Process.pid} \#{env["PATH_INFO"]}")
      over = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.0005
      nil until Process.clock_gettime(Process::CLOCK_MONOTONIC) > over
      [200, { "content-type" => "text/plain" }, ["x"]]
    end
  RUBY

  [1, 2].each do |workers|
    it "come after one round of the kept ones at most with #{workers} worker(s), however few and short those are", alone: "turns at processors" do
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

  it "are served while others send without a pause, and so are kept ones" do
    serve_kept(options: { MaxBodySize: 8_000_000_000 }, env: { "TMPDIR" => File.directory?("/dev/shm") ? "/dev/shm" : nil })
    kept = kept_peers(1).first
    over = false
    writers = Array.new(4) do
      upload = peer.write("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000000\r\n\r\n")
      Thread.new { upload.write("x" * 1_000_000) until over }
    end
    30.times { expect([server.get("/pid"), kept.get("/pid")].map(&:status)).to eq([200, 200]) }
  ensure
    over = true
    writers&.each(&:join)
  end
end
