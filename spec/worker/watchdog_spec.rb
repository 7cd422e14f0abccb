# frozen_string_literal: true

# A request that takes longer than it may ends its worker, and its client gets an answer.
RSpec.describe "the watchdog", once: "the helper and the master watch, neither of which asks Ruby" do
  # Seconds that a request may take here, and that a quick one does not take on a busy machine either.
  short = GcMode.patient(0.25)

  def serve(timeout: 1, workers: 2, **options)
    Server.start(ru: HangingApp::RU, options: { MaxWorkers: workers, RequestTimeout: timeout, MaxRequestPerChild: 0, **options }).tap { |server| server.await_workers(workers) }
  end

  def seconds
    start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    result = yield
    [result, Process.clock_gettime(Process::CLOCK_MONOTONIC) - start]
  end

  # Has the request in the app go on after more than those seconds. That nothing is done about it, only time can show.
  def outlast(timeout, server)
    sleep timeout + 0.5
    server.write("go", "")
  end

  # @return [Thread] with the answer, once the app has been called
  def waiting_request(server, path = "/wait")
    thread = Thread.new { server.get(path) }
    Eventually.eventually { server.lines_of("waiting").any? }
    thread
  end

  { "sleeps" => ["/sleep", HangingApp::SLEEP_LINE], "loops" => ["/loop", HangingApp::LOOP_LINE],
    "keeps Ruby's lock in native code" => ["/native", HangingApp::NATIVE_LINE] }.each do |manner, (path, line)|
    it "C3: answers 504 in time, names the request and its line, and replaces the worker, where the app #{manner}",
       **(path == "/native" ? { alone: "stacks of all threads within a second" } : {}) do
      server = serve(timeout: timeout = GcMode.patient(1))
      before = server.workers
      response = time = after = nil
      others = ClientLoop.run(server, paths: ["/"]) do
        response, time = seconds { server.get(path, { "X-Request-ID" => "id-7" }) }
        after = server.await_workers(2) { |found| found != before }
      end
      expect([response.status, response.headers["connection"], time]).to match([504, "close", be >= timeout - 0.05])
      expect([others.failures, (before & after).size]).to eq([[], 1])
      server.await_log(/^fastrack: GET #{path} has taken \d+\.\d s, request id id-7: this worker ends \(worker #{(before - after).first}\)$/)
      server.await_log(%r{^    #{server.dir}/config.ru:#{line}:})
      server.await_log(/^fastrack: worker \d \(pid #{(before - after).first}\) exited with status 124 \(request timeout\) while serving GET #{path} for \d+\.\d s, request id id-7$/)
    end
  end

  it "shows where native code is that keeps Ruby's lock", alone: "stacks of all threads within a second" do
    server = serve
    server.get("/native")
    server.await_log(/^  in native code:\n(.*\n)*?.*\bsigwait\b/)
  end

  it "names all of Ruby's threads" do
    ru = 'run ->(_) { Thread.new { sleep }.name = "beside"; sleep }'
    server = Server.start(ru: ru, options: { MaxWorkers: 1, RequestTimeout: 0.5 })
    server.get("/")
    server.await_log(%r{^  the main thread:\n    #{server.dir}/config.ru:1:in .*sleep'\n    #{server.dir}/config.ru:1:in .*\n(    .*\n)*  a thread \(beside\):\n    #{server.dir}/config.ru:1:in .*sleep'$})
    expect(server.log).not_to include("lib/fastrack/worker.rb")
  end

  it "cuts a response that has begun by a reset, so that nobody takes it for whole" do
    received, ending = HttpPeer.exchange(serve, "GET /half HTTP/1.0\r\n\r\n")
    expect([received, ending]).to match([end_with("\r\n\r\nhalf"), :reset])
  end

  it "answers HEAD without a body, and with a date" do
    received, = HttpPeer.exchange(serve, "HEAD /sleep?0.3 HTTP/1.1\r\nHost: h\r\n\r\n")
    expect(received).to match(%r{\AHTTP/1.1 504 Gateway Timeout\r\nDate: \w{3}, \d\d \w{3} 20\d\d [\d:]{8} GMT\r\n.*\r\n\r\n\z}m)
  end

  it "leaves a response alone that the client has whole, though the body's close hangs" do
    server = serve
    received, ending = HttpPeer.exchange(server, "GET /whole HTTP/1.0\r\n\r\n")
    expect([received[-5..], ending]).to eq(["whole", :closed])
    server.await_log(%r{GET /whole has taken \d+\.\d s})
  end

  it "leaves clients alone that send or read slowly: their time is not the app's" do
    # What the app itself takes for 40 MB is far less, also on a busy machine.
    limit = short * 4
    server = serve(workers: 1, timeout: limit, ResponseBuffer: 0, MaxResponseSpool: 0, WriteTimeout: 30)
    HttpPeer.open(server) do |peer|
      peer.write("GET /large HTTP/1.0\r\n")
      expect(peer.anything_within?(limit + 0.3)).to be(false)
      peer.write("\r\n")
      # Nothing is read for longer than the app may take, and the app waits for it.
      peer.read_until(/xxxx/)
      expect(server.workers.size).to eq(1)
      sleep limit * 1.5
      peer.read_to_end
      expect([peer.received.scan("x" * 65_536).size, peer.ending]).to eq([640, :closed])
    end
    expect(server.log).not_to include("has taken")
  end

  it "counts neither collections between requests nor background threads", :quiet do
    ru = <<~RUBY
      Thread.new { sleep }
      run ->(_) { [200, {}, [Process.pid.to_s]] }
    RUBY
    slow_gc = "after_fork { GC.singleton_class.prepend(Module.new { def start(**) = (sleep(#{short * 2}); File.write('collected', ''); super) }) }"
    server = Server.start(ru: ru, options: { MaxWorkers: 1, RequestTimeout: short, OobGC: true, MaxGCPerRequest: 1 }, config: slow_gc)
    first = server.get("/").body
    second = server.get("/").body
    # It had to wait for the collection.
    expect([second, server.file?("collected")]).to eq([first, true])
    expect(server.log).not_to include("has taken")
  end

  describe "env[\"fastrack.timeout\"]" do
    it "gives a request more time than others have" do
      server = serve(timeout: short)
      response = waiting_request(server, "/wait?30")
      outlast(short, server)
      expect([response.value.status, server.get("/sleep").status]).to eq([200, 504])
    end

    it "gives it less, and any" do
      server = serve(timeout: 600)
      expect(server.get("/sleep?0.4").status).to eq(504)
      server = serve(timeout: short)
      response = waiting_request(server, "/wait?0")
      outlast(short, server)
      expect(response.value.status).to eq(200)
    end
  end

  it "watches nothing with a RequestTimeout of 0" do
    server = serve(timeout: 0, workers: 1)
    response = waiting_request(server)
    outlast(0.5, server)
    expect(response.value.status).to eq(200)
  end

  it "has the master kill a worker that cannot end itself, and say at which request" do
    server = serve
    before = server.workers
    response, time = seconds { HttpPeer.exchange(server, "GET /stop HTTP/1.0\r\n\r\n").first }
    pid = Eventually.eventually { (before - server.workers).first }
    expect([response, time]).to match(["", be >= 2.9])
    server.await_log(/^fastrack: worker \d \(pid #{pid}\) does not exit: killing it; it is serving GET \/stop for \d+\.\d s$/)
    server.await_log(/^fastrack: worker \d \(pid #{pid}\) was killed by the master \(RequestTimeout\) while serving GET \/stop for \d+\.\d s$/)
    expect(server.await_workers(2)).not_to include(pid)
  end
end
