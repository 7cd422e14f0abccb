# frozen_string_literal: true

# Which worker has a request, and what becomes of the others when one of several has to end.
RSpec.describe "Workers with several requests" do
  include ThreadsApp

  def holders = server.lines_of("waiting").map(&:to_i)

  it "have one each before any has two", alone: "an idle worker needs a processor sooner than a busy one looks again" do
    workers = serve(workers: 2, threads: 2)
    eventually { server.get("/states").body == "serving waiting" }
    ones = waiting(4)
    expect(holders.first(2)).to match_array(workers)
    expect(holders.tally.values).to eq([2, 2])
    go
    expect(statuses(ones)).to eq([200] * 4)
  end

  it "send early hints to the client whose request it is" do
    serve(threads: 3, options: { EarlyHints: true })
    ones = %w[a b c].map do |name|
      Thread.new { server.raw("GET /hints?#{name} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n") }
    end
    eventually { holders.size == 3 }
    go
    ones.map(&:value).zip(%w[a b c]) do |response, name|
      expect(response.scan(%r{</(\w)>; rel=preload})).to eq([[name]])
      expect(response).to end_with("\r\n\r\n#{name}").or(end_with("\r\n#{name}\r\n0\r\n\r\n"))
    end
  end

  it "answer 500 where the gem rack-timeout ends requests, a thread each, and serve on" do
    missing = AppRequirements.missing("rack-timeout", 'require "rack-timeout"')
    skip missing if missing

    # As its README says, but for its lines in the log.
    limited = ThreadsApp::RU.sub("run lambda", <<~'RUBY'.chomp)
      require "rack-timeout"
      Rack::Timeout::Logger.disable
      use Rack::Timeout, service_timeout: 3, wait_timeout: 30
      run lambda
    RUBY
    before = serve(ru: limited)
    late = Array.new(5) { request("/wait?never") }
    expect(statuses(late)).to eq([500] * 5)
    eventually { server.log.scan(/Rack::Timeout::RequestTimeoutException/).size >= 5 }
    # A request that has waited for too long never gets to the app.
    expect(server.get("/", { "X-Request-Start" => ((Time.now.to_f - 60) * 1000).to_i.to_s }).status).to eq(500)
    server.await_log("Rack::Timeout::RequestExpiryError")
    expect([statuses(Array.new(10) { request("/") }), server.workers]).to eq([[200] * 10, before])
  end

  it "pass their idle connections on when a request is overdue, and finish the others" do
    serve(workers: 2, threads: 2, options: { RequestTimeout: 60 })
    peers = Array.new(10) { KeptPeer.new(server) }
    peers.each { |peer| expect(peer.get("/").status).to eq(200) }
    ones = waiting(3)
    expect(server.get("/sleep?0.3").status).to eq(504)
    go
    expect(statuses(ones)).to eq([200] * 3)
    eventually { server.log.match?(/exited with status 124 \(request timeout\)/) }
    expect(peers.map { |peer| peer.get("/").status }).to eq([200] * 10)
  end

  it "answer all their requests with 504, each in its time, while one keeps Ruby's lock for ever" do
    before = serve(threads: 3, options: { RequestTimeout: 2 })
    ones = waiting(2, "/wait?never") << request("/lock")
    expect(statuses(ones)).to eq([504] * 3)
    server.await_workers(1) { |found| found != before }
    expect(server.get("/").status).to eq(200)
  end

  it "say which request began first when they are killed" do
    worker = serve(threads: 2).first
    %w[first second].each do |name|
      before = holders.size
      KeptPeer.new(server).ask("/wait?#{name}").tap { eventually { holders.size > before } }
    end
    Process.kill(:KILL, worker)
    eventually { server.log.match?(%r{worker 0 \(pid #{worker}\) was killed by SIGKILL while serving GET /wait }) }
  end

  it "wait for all their requests when there is to be one worker less (TTOU)" do
    workers = serve(workers: 2, threads: 2)
    eventually { server.get("/states").body == "serving waiting" }
    ones = waiting(4)
    server.signal(:TTOU)
    eventually { server.log.match?(/TTOU: changing to 1 worker$/) }
    expect(server.workers).to match_array(workers)
    go
    expect(statuses(ones)).to eq([200] * 4)
    server.await_workers(1)
  end

  it "wait for all their requests when there is a new master (USR2)" do
    serve(threads: 2)
    ones = waiting(2)
    before = server.master
    server.signal(:USR2)
    eventually { server.log.match?(/the new master \(pid \d+\) is ready/) }
    expect(server.get("/").status).to eq(200)
    go
    expect(statuses(ones)).to eq([200, 200])
    eventually { server.master != before }
    expect(server.get("/").status).to eq(200)
  end
end
