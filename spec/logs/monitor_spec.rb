# frozen_string_literal: true

# What the monitor tells, to whom, and what it does when it is told to.
RSpec.describe "The monitor", linux: "a thread with descriptors of its own", once: "a thread without Ruby" do
  include Folder
  include MonitorHelpers

  describe "beside a server that serves" do
    before(:context) { @server = serving }

    it "has metrics that Prometheus reads" do
      before = monitor.metrics
      3.times { @server.get }
      @server.get("/bad")
      # A worker counts a request, and waits for the next one, when the client has its response.
      found = nil
      Eventually.eventually(20, -> { found }) do
        found = monitor.metrics
        found['fastrack_requests_total{status="4xx"}'] == 1 && found['fastrack_workers{state="idle"}'] == 2 && found["fastrack_queue_seconds_count"] - before["fastrack_queue_seconds_count"] >= 4
      end
      answer = monitor.get("/metrics")
      expect(answer.head).to match(%r{^content-type: application/openmetrics-text; version=1\.0\.0}i)
      expect(answer.body).to end_with("# EOF\n").and include("# TYPE fastrack_request_seconds histogram\n")
      counts = ["fastrack_requests_total{status=\"2xx\"}", "fastrack_request_seconds_count{status=\"2xx\"}",
                "fastrack_request_seconds_bucket{le=\"+Inf\",status=\"2xx\"}"]
      expect(counts.map { |name| found[name] - before[name] }).to eq([3.0] * 3)
      expect(found["fastrack_queue_seconds_count"] - before["fastrack_queue_seconds_count"]).to eq(4)
      expect(found).to include("fastrack_workers_wanted" => 2.0, 'fastrack_workers{state="idle"}' => 2.0, 'fastrack_phase{phase="serving"}' => 1.0)
      expect(found.keys).to include('fastrack_resident_memory_bytes{process="worker[1]"}', 'fastrack_cpu_seconds_total{process="master"}')
      expect(answer.body.lines.map { |line| line[/\A[^#].* /] }.compact.tally.values).to all(eq(1))
    end

    it "has them in plain text for who asks for that alone, which promtool checks as it does the example's configuration" do
      types = {
        "text/plain;version=0.0.4;q=1,*/*;q=0.1" => %r{^content-type: text/plain; version=0\.0\.4}i,
        "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1" => %r{^content-type: application/openmetrics-text}i
      }
      plain, = types.map { |accept, type| monitor.get("/metrics", "Accept" => accept).tap { |answer| expect(answer.head).to match(type) } }
      expect(plain.body).to include("# TYPE fastrack_requests_total counter\n", "# HELP fastrack_requests_total ")
      expect(plain.body).not_to include("# EOF")
      skip "promtool is not installed: apt-get install --no-install-recommends prometheus" unless system("promtool", "--version", %i[out err] => File::NULL)

      output, status = Open3.capture2e("promtool", "check", "metrics", stdin_data: plain.body)
      expect([output, status.exitstatus]).to eq(["", 0])
      output, status = Open3.capture2e("promtool", "check", "config", File.join(Server::ROOT, "examples/monitoring/prometheus.yml"))
      expect(status.exitstatus).to eq(0), output
    end

    it "serves each metric by which the dashboard in examples/monitoring asks, and each in docs/monitor.md, with those labels" do
      panels = JSON.parse(File.read(File.join(Server::ROOT, "examples/monitoring/dashboard.json")))["panels"]
      queries = panels.flat_map { |panel| panel.fetch("targets", []).map { |target| target["expr"] } }
      answer = monitor.get("/metrics").body
      served = answer.scan(/^(fastrack_\w+)/).flatten.uniq
      asked = queries.flat_map { |query| query.scan(/fastrack_\w+/) }.uniq
      expect([asked.size > 10, asked - served]).to eq([true, []])
      queries.each do |query|
        labels = query[/by \((\w+)\)/, 1] or next
        expect(answer).to match(/^#{query[/fastrack_\w+/]}\{[^}]*\b#{labels}="/), query
      end
      described = File.read(File.join(Server::ROOT, "docs/monitor.md"))
      rows = described.lines.grep(/^\| `fastrack_/).flat_map { |row| row.scan(/`(fastrack_\w+)`/).flatten }.grep_v(/_proxy_/)
      expect(rows.reject { |name| served.any? { |one| one.start_with?(name) } }).to eq([])
      # And the other way round: what is served is described.
      stems = answer.scan(/^# TYPE (fastrack_\w+)/).flatten
      expect(stems.reject { |stem| described.include?(stem) || described.match?(/`#{stem.sub("fastrack_connections", "")}_total`/) }).to eq([])
    end

    it "does nothing that a browser's page or a GET asks for" do
      answers = [monitor.post("/stop", "Origin" => "http://localhost:9394"), monitor.get("/stop"), monitor.ask("DELETE", "/stop"), monitor.post("/")]
      expect([answers.map(&:status), monitor.status]).to match([[403, 404, 405, 404], include("phase" => "serving")])
    end

    it "has a page in one file without anything from elsewhere" do
      page = monitor.get("/")
      expect(page.head).to match(/^content-security-policy: default-src 'none';/i)
      expect(page.body).not_to match(%r{(?:src|href)=|https?://(?!www\.w3\.org/2000/svg)})
    end
  end

  describe "on its unix socket" do
    it "is beside the pid file, for the owner of the server alone, and is gone with the server" do
      server = serving
      expect(File.stat(monitor.path)).to have_attributes(socket?: true, mode: 0o140600)
      expect(monitor.get("/healthz")).to have_attributes(status: 200, body: "ok\n")
      server.stop
      expect(Dir.children(server.dir).grep(/app\./)).to eq([])
    end

    it "is where ControlPath says, and nowhere without a pid file or with ControlPath=none" do
      server = serve(options: { Pid: nil, ControlPath: "other.control" })
      expect(MonitorClient.new(server.file("other.control")).get("/healthz").status).to eq(200)
      [{ Pid: nil }, { ControlPath: "none" }].each do |options|
        server = serve(options: options)
        expect([server.get.status, Dir.glob("#{server.dir}/*.control")]).to eq([200, []])
      end
    end

    it "does not replace a file that is no socket, which costs a log line and nothing else" do
      server = Server.start(ru: MonitorHelpers::APP, options: { MaxWorkers: 1, ControlPath: "precious" }, files: { "precious" => "data" })
      server.await_log(/^fastrack: no monitor at .*precious: it exists and is not a socket$/)
      expect([server.get.status, File.read(server.file("precious"))]).to eq([200, "data"])
    end

    it "leaves the socket of a server that lives alone, which costs a log line and nothing else" do
      first = serving
      second, third = Array.new(2) { Server.start(ru: MonitorHelpers::APP, options: { MaxWorkers: 1, ControlPath: monitor.path }) }
      [second, third].each { |one| one.await_log(/^fastrack: no monitor at #{monitor.path}: another process listens there/) }
      expect([second.get.status, monitor.status["pid"]]).to eq([200, first.master])
      second.stop
      expect(monitor.status["pid"]).to eq(first.master)
      # Once it is gone, a HUP is enough.
      first.stop
      third.signal(:HUP)
      expect(monitor.await { |status| status["phase"] == "serving" }).to include("pid" => third.master)
    end

    it "is refused where the server itself listens" do
      server = Server.fail_to_start(ru: MonitorHelpers::APP, options: { Path: "both.sock", ControlPath: "both.sock" })
      expect([server.status.exitstatus, server.log]).to match([1, /ControlPath: the server itself listens at .*both\.sock/])
    end

    it "starts without one where its path is too long, with one line, and `fastrack status` says so" do
      Dir.mkdir(long = File.join(@dir, "x" * 100))
      server = serve(options: { Pid: pid_file = File.join(long, "app.pid") })
      server.await_log(/bytes too long for a socket$/).await_ready
      server.signal(:HUP)
      server.await_ready(2)
      expect([server.log.scan("no monitor at").size, server.get.status]).to eq([1, 200])
      expect(fastrack("status", "-P", pid_file)).to match([/\Afastrack: process #{server.master} is a master without a monitor/, 1])
      server.stop
    end
  end

  it "tells what each worker is at, without what may be secret" do
    server = hanging
    clients = hung(server, "/wait", 1) + ask(server, "/wait?31415926")
    await_requests("/wait", 2)
    # It takes its time to read how large new processes are.
    status = monitor.await("no sizes") { |now| now["workers"].all? { |one| one["pss"] } }
    expect(status).to include("pid" => server.master, "generation" => 1, "workers_wanted" => 2, "workers_ready" => 2)
    expect(status["workers"].map { |one| one["pid"] }).to match_array(server.workers)
    expect(status["workers"]).to all(include("rss" => be > 1_000_000, "pss" => be > 100_000, "request_seconds" => be >= 0, "state" => "busy"))
    server.write("go", "")
    expect(clients.map(&:read)).to all(start_with("HTTP/1.1 200"))
    done = monitor.await { |now| now["responses"]["2xx"] == status["responses"]["2xx"] + 2 }
    expect(done["request_time"]["count"]).to be >= 2
  end

  it "knows how many clients wait for workers that hang, and which exits there were" do
    server = hanging(HandOver: false)
    hung(server, "/native", 1)
    ask(server, "/native?31415926")
    await_requests("/native", 2)
    ask(server, "/", 3)
    monitor.await("no backlog") { |status| status["listeners"].sum { |one| one["backlog"] } == 3 }
    victim = server.workers.first
    server.signal(:KILL, to: victim)
    last = monitor.await("no exit") { |status| status["last_exits"].any? }["last_exits"].first
    expect(last).to include("pid" => victim, "cause" => "signal", "text" => /\Awas killed by SIGKILL while serving GET \/native/)
    expect(monitor.metrics['fastrack_worker_restarts_total{cause="signal"}']).to eq(1)
    server.workers.each { |pid| server.signal(:KILL, to: pid) }
    exits = monitor.await("no two exits") { |status| status["last_exits"].count { |one| one["text"].include?("while serving") } >= 2 }["last_exits"]
    # The one that took the first one's place may be serving those that waited.
    expect(exits.map { |one| one["text"] }).to all(match(%r{GET /(?:native)? for}).or(eq("exited")).or(match(/SIGKILL\z/)))
    expect(server.log).not_to include("31415926")
  end

  it "knows of each listener how many wait there, and of TCP how many may, before and after a HUP opens another one" do
    path = File.join(@dir, "app.sock")
    unix = ":unix:#{path}"
    server = serve(ru: HangingApp::RU, config: %(listen #{path.inspect}, backlog: 9\n), options: { RequestTimeout: 0, GracefulTimeout: 0, HandOver: false, MaxWorkers: 1 })
    ready(1)
    listeners = -> { monitor.status["listeners"].map { |one| one.values_at("address", "backlog", "limit") } }
    expect(listeners.call).to eq([[unix, 0, nil]])
    port = FreePort.keep do |free|
      server.reload(%(listen #{path.inspect}, backlog: 9\nlisten "127.0.0.1:#{free}", backlog: 7\n))
      server.await_log("Listening on 127.0.0.1:#{free}")
      free
    end
    monitor.await("two workers") { |status| status["generation"] == 2 && status["workers"].size == 1 && status["workers_ready"] == 1 }
    native = ->(count) { Array.new(count) { Clients.keep(UNIXSocket.new(path)).write("GET /native HTTP/1.1\r\nHost: h\r\n\r\n") } }
    native.call(1)
    await_requests("/native", 1)
    native.call(2)
    monitor.await("nobody waits") { listeners.call.first == [unix, 2, nil] }
    Array.new(2) { Clients.keep(TCPSocket.new("127.0.0.1", port)).write("GET / HTTP/1.1\r\nHost: h\r\n\r\n") }
    monitor.await("nobody waits") { listeners.call == [[unix, 2, nil], ["127.0.0.1:#{port}", 2, 7]] }
    expect(monitor.metrics).to include("fastrack_listen_backlog{listener=\"#{unix}\"}" => 2,
                                       "fastrack_listen_backlog_limit{listener=\"127.0.0.1:#{port}\"}" => 7)
    expect(fastrack("status", "-P", @pid_file).first).to match(%r{  backlog 2 2/7  memory })
  end

  it "counts the clients in the workers' shared queue among those who wait" do
    server = hanging
    hung(server, "/wait", 2)
    waiting = ask(server, "/", 12)
    # One that is on its way into the queue is in neither place, and so the numbers come to rest first. A worker keeps no
    # more than those it comes to next.
    Eventually.eventually(20, -> { monitor.metrics.grep(/connections/).inspect }) do
      found = monitor.metrics
      found.values_at('fastrack_connections{state="waiting"}', 'fastrack_connections{state="in_app"}') == [12, 2] &&
        found["fastrack_connections_handed_over_total"] >= 8
    end
    expect(fastrack("status", "-P", @pid_file)).to match([/\AFastrack .*  serving  generation 1  up \S+  12 waiting\n/, 0])
    server.write("go", "")
    expect(waiting.map { |socket| socket.read[/\AHTTP\S+ (\d+)/, 1] }).to all(eq("200"))
    monitor.await("some wait") { |status| status["connections"]["waiting"].zero? }
  end

  it "answers while all workers hang in native code with Ruby's lock held, and the master in a hook" do
    server = serving(ru: HangingApp::RU, config: %(before_fork { sleep 0.01 while File.exist?("hang") }\n), options: { RequestTimeout: 0, GracefulTimeout: 0 })
    hung(server, "/native", 2)
    server.write("hang", "")
    server.signal(:TTIN)
    server.await_log("TTIN: changing to 3 workers")
    3.times { expect(monitor.metrics).to include('fastrack_workers{state="busy"}' => 2.0) }
    expect(server.workers.size).to eq(2)
    server.remove("hang")
  end

  it "is ready when workers are, and not while they boot or the server drains" do
    server = serve(config: %(after_fork { sleep 0.01 until File.exist?("go") }\n), options: { DrainDelay: 600 })
    booting = Eventually.eventually { monitor.get("/readyz") rescue nil } # rubocop:disable Style/RescueModifier
    expect(booting).to have_attributes(status: 503, body: "booting, 0 of 2 workers ready\n")
    server.write("go", "")
    ready
    expect(monitor.get("/readyz")).to have_attributes(status: 200, body: "serving, 2 of 2 workers ready\n")
    server.signal(:TERM)
    monitor.await { |status| status["phase"] == "draining" }
    expect([monitor.get("/readyz").status, monitor.get("/healthz").status]).to eq([503, 200])
    server.stop(:QUIT)
  end

  describe "on a port (ControlListen)" do
    token = MonitorHelpers::TOKEN

    it "wants the token, and lets nobody act" do
      outside = FreePort.keep do |port|
        serving(options: { ControlListen: port, ControlToken: token })
        MonitorClient.new(port)
      end
      wrong = [{}, { "Authorization" => "Bearer #{token.reverse}" }, { "Authorization" => "Bearer #{token}x" }]
      expect(wrong.map { |headers| outside.get("/metrics", headers).status }).to eq([401, 401, 401])
      expect(outside.get("/metrics", "Authorization" => "Bearer #{token}").status).to eq(200)
      expect(outside.get("/status.json?token=#{token}").status).to eq(200)
      expect(outside.post("/stop?token=#{token}").status).to eq(403)
    end

    {
      "example.com:80" => [token, /ControlListen must be an IP address and port/], "10.0.0.0/8:9394" => [token, /must be an IP address/],
      "127.0.0.1:0" => [token, /must be an IP address/], "127.0.0.256:9394" => [token, /must be an IP address/],
      "127.0.0.01:9394" => [token, /must be an IP address/],
      "9394" => [nil, /ControlListen needs ControlToken: every user/], "0.0.0.0:9394" => [nil, /ControlListen needs ControlToken: whoever reaches 0\.0\.0\.0:9394/],
      "[::]:9394" => [nil, /ControlListen needs ControlToken: whoever reaches \[::\]:9394/], "9395" => ["short", /ControlToken must be 16 or more/]
    }.each do |place, (key, message)|
      it "is refused at #{place} with #{key ? "a token of #{key.size} letters" : "no token"}, and no token is in the log" do
        server = Server.fail_to_start(ru: MonitorHelpers::APP, options: { ControlListen: place, ControlToken: key })
        expect([server.status.exitstatus, server.log]).to match([1, message])
        expect(server.log).not_to include(key) if key
      end
    end
  end
end
