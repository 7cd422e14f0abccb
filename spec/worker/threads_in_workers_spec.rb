# frozen_string_literal: true

require "support/app_requirements"
require "support/eventually"
require "support/kept_peer"

# Which worker has a request, and what becomes of the others when one of several has to end.
RSpec.describe "Workers with several requests" do
  app = <<~'RUBY'
    require "fiddle"
    HERE = File.dirname(File.expand_path(__FILE__))
    # sigwait(3) for no signal at all: native code that never returns and keeps Ruby's lock.
    SIGWAIT = Fiddle::Function.new(Fiddle.dlopen(nil)["sigwait"], [Fiddle::TYPE_VOIDP] * 2, Fiddle::TYPE_INT, need_gvl: true)

    def wait_for(name)
      File.write(File.join(HERE, "waiting"), "#{Process.pid}\n", mode: "a")
      sleep 0.005 until File.exist?(File.join(HERE, name))
    end

    run lambda { |env|
      query = env["QUERY_STRING"]
      case env["PATH_INFO"]
      when "/wait" then wait_for(query)
      when "/hints"
        env["rack.early_hints"].call("link" => "</#{query}>; rel=preload")
        wait_for("go")
      when "/overdue"
        env["fastrack.timeout"].call(0.3)
        sleep
      when "/lock" then SIGWAIT.call("\0" * 128, "\0" * 8)
      when "/often"
        30.times { sleep 0.0003 }
        query = Thread.current.native_thread_id.to_s
      when "/states" then query = Fastrack.stats[:workers].map { |worker| worker[:state] }.sort.join(" ")
      end
      [200, { "content-type" => "text/plain" }, [query]]
    }
  RUBY

  define_method(:serve) do |workers: 1, threads: 2, **options|
    @server = Server.start(ru: app, options: { MaxWorkers: workers, MaxThreads: threads, **options })
    server.await_workers(workers)
  end

  attr_reader :server

  def request(path)
    Thread.new { server.get(path).status }
  end

  # One after the other, until each is in the app.
  def waiting(count, path = "/wait?go")
    Array.new(count) do
      before = server.lines_of("waiting").size
      request(path).tap { eventually { server.lines_of("waiting").size > before } }
    end
  end

  def holders
    server.lines_of("waiting").map(&:to_i)
  end

  def go
    server.write("go", "")
  end

  it "have one each before any has two" do
    workers = serve(workers: 2)
    eventually { server.get("/states").body == "serving waiting" }
    ones = waiting(4)
    expect(holders.first(2)).to match_array(workers)
    expect(holders.tally.values).to eq([2, 2])
    go
    expect(ones.map(&:value)).to eq([200] * 4)
  end

  # How often each thread has gone to sleep, but the one of that number: proc(5).
  def sleeps(worker, but)
    tasks = Dir.glob("/proc/#{worker}/task/*").select { |task| File.read("#{task}/comm").start_with?("fastrack thread") }
    tasks -= ["/proc/#{worker}/task/#{but}"]
    tasks.map { |task| File.read("#{task}/status")[/^voluntary_ctxt_switches:\s*(\d+)/, 1].to_i }
  end

  it "wake no other thread while a request waits thirty times, and nobody waits for a thread" do
    worker = serve(threads: 5).first
    eventually { sleeps(worker, 0).size == 4 }
    # Another one takes over for once where this one waits for a CPU.
    eventually do
      thread = server.get("/often").body
      before = sleeps(worker, thread)
      answers = Array.new(20) { server.get("/often").body }.uniq
      answers == [thread] && sleeps(worker, thread).zip(before).all? { |after, start| after - start < 20 }
    end
  end

  it "send early hints to the client whose request it is" do
    serve(threads: 3, EarlyHints: true)
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
    limited = app.sub("run lambda", <<~'RUBY'.chomp)
      require "rack-timeout"
      Rack::Timeout::Logger.disable
      use Rack::Timeout, service_timeout: 1, wait_timeout: 30
      run lambda
    RUBY
    @server = Server.start(ru: limited, options: { MaxWorkers: 1, MaxThreads: 5 })
    before = server.await_workers(1)
    late = Array.new(5) { request("/wait?never") }
    expect(late.map(&:value)).to eq([500] * 5)
    expect(server.log.scan(/Rack::Timeout::RequestTimeoutException/).size).to be >= 5
    # A request that has waited for too long never gets to the app.
    expect(server.get("/", { "X-Request-Start" => ((Time.now.to_f - 60) * 1000).to_i.to_s }).status).to eq(500)
    expect(server.log).to include("Rack::Timeout::RequestExpiryError")
    expect(Array.new(10) { request("/often") }.map(&:value)).to eq([200] * 10)
    expect(server.workers).to eq(before)
  end

  it "pass their idle connections on when a request is overdue, and finish the others" do
    serve(workers: 2, RequestTimeout: 60)
    peers = Array.new(10) { KeptPeer.new(server) }
    peers.each { |peer| expect(peer.get("/").status).to eq(200) }
    ones = waiting(3)
    expect(server.get("/overdue").status).to eq(504)
    go
    expect(ones.map(&:value)).to eq([200] * 3)
    eventually { server.log.match?(/exited with status 124 \(request timeout\)/) }
    expect(peers.map { |peer| peer.get("/").status }).to eq([200] * 10)
  end

  it "answer all their requests with 504, each in its time, while one keeps Ruby's lock for ever" do
    before = serve(threads: 3, RequestTimeout: 2)
    ones = waiting(2, "/wait?never") << request("/lock")
    expect(ones.map(&:value)).to eq([504] * 3)
    server.await_workers(1) { |found| found != before }
    expect(server.get("/").status).to eq(200)
  end

  it "say which request began first when they are killed" do
    worker = serve.first
    peers = %w[first second].map do |name|
      before = holders.size
      KeptPeer.new(server).ask("/wait?#{name}").tap { eventually { holders.size > before } }
    end
    Process.kill(:KILL, worker)
    eventually { server.log.match?(%r{worker 0 \(pid #{worker}\) was killed by SIGKILL while serving GET /wait\?first }) }
    peers.each(&:close)
  end

  it "wait for all their requests when there is to be one worker less (TTOU)" do
    workers = serve(workers: 2)
    eventually { server.get("/states").body == "serving waiting" }
    ones = waiting(4)
    server.signal(:TTOU)
    eventually { server.log.match?(/TTOU: changing to 1 workers/) }
    expect(server.workers).to match_array(workers)
    go
    expect(ones.map(&:value)).to eq([200] * 4)
    server.await_workers(1)
  end

  it "wait for all their requests when there is a new master (USR2)" do
    serve
    ones = waiting(2)
    before = server.master
    server.signal(:USR2)
    eventually { server.log.match?(/the new master \(pid \d+\) is ready/) }
    expect(server.get("/").status).to eq(200)
    go
    expect(ones.map(&:value)).to eq([200, 200])
    eventually { server.master != before }
    expect(server.get("/").status).to eq(200)
  end
end
