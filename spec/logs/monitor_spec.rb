# frozen_string_literal: true

require "io/console"
require "open3"
require "pty"
require "spec_helper"
require "support/app_chromium"
require "support/free_port"
require "support/hanging_app"
require "support/http_peer"
require "support/monitor_client"
require_relative "../../lib/fastrack/master/monitor_thread"

# What the monitor tells, and that it and its clients do the server no harm.
RSpec.describe "The monitor", linux: "a thread with descriptors of its own" do
  app = %q(run ->(env) { [env["PATH_INFO"] == "/bad" ? 404 : 200, { "content-type" => "text/plain" }, [Process.pid.to_s]] })

  define_method(:serve) do |ru: app, options: {}, **keywords|
    dir = Dir.mktmpdir("fastrack-monitor")
    (@dirs ||= []) << dir
    Server.start(ru: ru, options: { MaxWorkers: 2, Pid: File.join(dir, "app.pid") }.merge(options), **keywords).tap do |server|
      @monitor = MonitorClient.new(File.join(dir, "app.control"))
      @pid_file = File.join(dir, "app.pid")
      server.await_workers(options.fetch(:MaxWorkers, 2))
    end
  end

  attr_reader :monitor

  after { Array(@dirs).each { |dir| FileUtils.remove_entry(dir) } }

  def ready(workers = 2)
    monitor.await("not serving") { |status| status["phase"] == "serving" && status["workers_ready"] == workers }
  end

  def hung(server, target, count)
    requests = Array.new(count) { server.connect.tap { |socket| socket.write("GET #{target} HTTP/1.1\r\nHost: h\r\n\r\n") } }
    monitor.await("no #{count} at #{target}") { |status| status["workers"].count { |one| one["request"] == "GET #{target}" } == count }
    requests
  end

  def fastrack(*arguments)
    output, status = Open3.capture2e(Server::CLEAN_ENVIRONMENT, RbConfig.ruby, "-w", Server::COMMAND, *arguments, chdir: Dir.tmpdir)
    [output, status.exitstatus]
  end

  describe "on its unix socket" do
    it "is beside the pid file, for the owner of the server alone, and is gone with the server" do
      server = serve
      ready
      expect(File.stat(monitor.path)).to have_attributes(socket?: true, mode: 0o140600)
      expect(monitor.get("/healthz")).to have_attributes(status: 200, body: "ok\n")
      server.stop
      expect(Dir.children(File.dirname(monitor.path))).to eq([])
    end

    it "is where ControlPath says, and nowhere without a pid file or with ControlPath=none" do
      path = File.join(Dir.tmpdir, "fastrack-#{Process.pid}.control")
      server = serve(options: { Pid: nil, ControlPath: path })
      expect(MonitorClient.new(path).get("/healthz").status).to eq(200)
      server.stop
      expect(File.exist?(path)).to be(false)
      [{ Pid: nil }, { ControlPath: "none" }].each do |options|
        server = serve(options: options)
        expect(server.get.status).to eq(200)
        expect(File.exist?(monitor.path)).to be(false)
      end
    end

    it "does not replace a file that is no socket, which costs a log line and nothing else" do
      path = File.join(Dir.mktmpdir, "precious")
      File.write(path, "data")
      server = serve(options: { ControlPath: path })
      Eventually.eventually { server.log.match?(/^fastrack: no monitor at .*precious: it exists and is not a socket$/) }
      expect([server.get.status, File.read(path)]).to eq([200, "data"])
      FileUtils.remove_entry(File.dirname(path))
    end

    it "leaves the socket of a server that lives alone, which costs a log line and nothing else" do
      first = serve
      ready
      second = Server.start(ru: app, options: { MaxWorkers: 1, ControlPath: monitor.path })
      Eventually.eventually { second.log.match?(/^fastrack: no monitor at #{monitor.path}: another process listens there/) }
      expect([second.get.status, monitor.status["pid"]]).to eq([200, first.master])
      second.stop
      expect(monitor.status["pid"]).to eq(first.master)
      # Once it is gone, a HUP is enough.
      third = Server.start(ru: app, options: { MaxWorkers: 1, ControlPath: monitor.path })
      first.stop
      third.signal(:HUP)
      expect(monitor.await { |status| status["phase"] == "serving" }).to include("pid" => third.master)
    end

    it "is refused where the server itself listens" do
      path = File.join(Dir.tmpdir, "fastrack-#{Process.pid}-both.sock")
      server = Server.fail_to_start(ru: app, options: { Path: path, ControlPath: path })
      expect([server.status.exitstatus, server.log]).to match([1, /ControlPath: the server itself listens at #{path}/])
    end

    it "starts without one where its path is too long, with one line, and `fastrack status` finds it all the same" do
      dir = File.join(Dir.mktmpdir("fastrack-long"), "x" * 100)
      Dir.mkdir(dir)
      server = serve(options: { Pid: pid_file = File.join(dir, "app.pid") })
      Eventually.eventually { server.log.match?(/bytes too long for a socket$/) && server.log.include?("Fastrack is ready") }
      server.signal(:HUP)
      Eventually.eventually { server.log.scan("Fastrack is ready").size == 2 }
      expect([server.log.scan("no monitor at").size, server.get.status]).to eq([1, 200])
      output, status = fastrack("status", "-P", pid_file)
      expect([status, output]).to match([0, /^Fastrack   pid #{server.master}  running  up /])
      server.stop
      FileUtils.remove_entry(File.dirname(dir))
    end

    it "tells what each worker is at, without what may be secret" do
      server = serve(ru: HangingApp::RU)
      before = ready
      client, = hung(server, "/wait", 1)
      secret = server.connect.tap { |socket| socket.write("GET /sleep?0.5 HTTP/1.1\r\nHost: h\r\n\r\n") }
      status = monitor.await { |now| now["workers"].all? { |one| one["state"] == "busy" } }
      expect(status).to include("pid" => server.master, "generation" => 1, "workers_wanted" => 2, "workers_ready" => 2)
      expect(status["workers"].map { |one| one["pid"] }).to match_array(server.workers)
      expect(status["workers"].map { |one| one["request"] }).to contain_exactly("GET /wait", "GET /sleep")
      expect(status["workers"]).to all(include("rss" => be > 1_000_000, "pss" => be > 100_000, "request_seconds" => be_between(0, 60)))
      server.write("go", "")
      expect(client.readpartial(12)).to eq("HTTP/1.1 200")
      done = monitor.await { |now| now["responses"]["2xx"] > before["responses"]["2xx"] }
      expect(done["request_time"]["count"]).to be >= 1
      [client, secret].each(&:close)
    end

    it "has metrics that Prometheus reads" do
      server = serve
      ready
      3.times { server.get }
      server.get("/bad")
      answer = Eventually.eventually { monitor.get("/metrics").then { |one| one if one.body.include?('requests_total{status="4xx"} 1') } }
      expect(answer.head).to match(%r{^content-type: application/openmetrics-text; version=1\.0\.0}i)
      expect(answer.body).to end_with("# EOF\n").and include("# TYPE fastrack_request_seconds histogram\n")
      expect(monitor.metrics).to include(
        'fastrack_requests_total{status="2xx"}' => 3.0, 'fastrack_request_seconds_count{status="2xx"}' => 3.0,
        'fastrack_request_seconds_bucket{le="+Inf",status="2xx"}' => 3.0, "fastrack_queue_seconds_count" => 4.0,
        "fastrack_workers_wanted" => 2.0, 'fastrack_workers{state="idle"}' => 2.0, 'fastrack_phase{phase="serving"}' => 1.0
      )
      names = monitor.metrics.keys
      expect(names.size).to eq(names.uniq.size)
      expect(names).to include('fastrack_resident_memory_bytes{process="worker[1]"}', 'fastrack_cpu_seconds_total{process="master"}')
    end

    it "has them in plain text for who asks for that alone, which promtool checks as it does the example's configuration" do
      serve
      ready
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

    it "knows how many clients wait for workers that hang, and which exits there were" do
      server = serve(ru: HangingApp::RU, options: { RequestTimeout: 0, HandOver: false })
      ready
      held = hung(server, "/native", 1)
      held << server.connect.tap { |socket| socket.write("GET /native?31415926 HTTP/1.1\r\nHost: h\r\n\r\n") }
      monitor.await("no two") { |status| status["workers"].count { |one| one["request"] == "GET /native" } == 2 }
      waiting = Array.new(3) { server.connect.tap { |socket| socket.write("GET / HTTP/1.0\r\n\r\n") } }
      monitor.await("no backlog") { |status| status["listeners"].sum { |one| one["backlog"] || 3 } == 3 }
      victim = server.workers.first
      server.signal(:KILL, to: victim)
      last = monitor.await("no exit") { |status| status["last_exits"].any? }["last_exits"].first
      expect(last).to include("pid" => victim, "cause" => "signal", "text" => /\Awas killed by SIGKILL while serving GET \/native/)
      expect(monitor.metrics['fastrack_worker_restarts_total{cause="signal"}']).to eq(1)
      server.workers.each { |pid| server.signal(:KILL, to: pid) }
      exits = monitor.await("no two exits") { |status| status["last_exits"].count { |one| one["text"].include?("while serving") } >= 2 }["last_exits"]
      expect(exits.map { |one| one["text"] }).to all(include("GET /native for").or(eq("exited")).or(match(/SIGKILL\z/)))
      expect(server.log).to include("GET /native?31415926 for")
      [*held, *waiting].each(&:close)
    end

    it "counts the clients in the workers' shared queue among those who wait" do
      server = serve(ru: HangingApp::RU, options: { RequestTimeout: 0 })
      ready
      held = hung(server, "/wait", 2)
      waiting = Array.new(12) { server.connect.tap { |socket| socket.write("GET / HTTP/1.0\r\n\r\n") } }
      monitor.await("not all wait") { |status| status["connections"]["waiting"] == 12 }
      expect(monitor.metrics).to include('fastrack_connections{state="waiting"}' => 12.0, 'fastrack_connections{state="in_app"}' => 2.0)
      expect(fastrack("status", "-P", @pid_file)).to match([/\AFastrack .*  serving  generation 1  up \S+  12 waiting\n/, 0])
      # Each worker has no more than those it comes to next.
      expect(monitor.metrics["fastrack_connections_handed_over_total"]).to be >= 8
      server.write("go", "")
      expect(waiting.map { |socket| socket.read[/\AHTTP\S+ (\d+)/, 1] }).to all(eq("200"))
      monitor.await("some wait") { |status| status["connections"]["waiting"].zero? }
    ensure
      [*held, *waiting].each(&:close)
    end

    it "serves each metric by which the dashboard in examples/monitoring asks, and each in docs/monitor.md, with those labels" do
      serve
      ready
      folder = File.join(Server::ROOT, "examples/monitoring")
      panels = JSON.parse(File.read(File.join(folder, "dashboard.json")))["panels"]
      queries = panels.flat_map { |panel| panel.fetch("targets", []).map { |target| target["expr"] } }
      answer = monitor.get("/metrics").body
      served = answer.scan(/^(fastrack_\w+)/).flatten.uniq
      asked = queries.flat_map { |query| query.scan(/fastrack_\w+/) }.uniq
      expect(asked.size).to be > 10
      expect(asked - served).to eq([])
      queries.each do |query|
        labels = query[/by \((\w+)\)/, 1] or next
        expect(answer).to match(/^#{query[/fastrack_\w+/]}\{[^}]*\b#{labels}="/), query
      end
      rows = File.read(File.join(Server::ROOT, "docs/monitor.md")).lines.grep(/^\| `fastrack_/)
      expect(rows.flat_map { |row| row.scan(/`(fastrack_\w+)`/).flatten }.reject { |name| served.any? { |one| one.start_with?(name) } }).to eq([])
      # And the other way round: what is served is described.
      described = File.read(File.join(Server::ROOT, "docs/monitor.md"))
      stems = answer.scan(/^# TYPE (fastrack_\w+)/).flatten
      expect(stems.reject { |stem| described.include?(stem) || described.match?(/`#{stem.sub("fastrack_connections", "")}_total`/) }).to eq([])
    end
  end

  it "answers while all workers hang in native code with Ruby's lock held, and the master in a hook" do
    config = %(before_fork { sleep 0.01 while File.exist?("hang") }\n)
    server = serve(ru: HangingApp::RU, config: config, options: { RequestTimeout: 0, GracefulTimeout: 0 })
    ready
    held = hung(server, "/native", 2)
    server.write("hang", "")
    server.signal(:TTIN)
    Eventually.eventually { server.log.include?("TTIN: changing to 3 workers") }
    times = Array.new(9) do
      before = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      expect(monitor.metrics).to include('fastrack_workers{state="busy"}' => 2.0)
      Process.clock_gettime(Process::CLOCK_MONOTONIC) - before
    end
    # Most take no longer either on a machine that has nothing else to do.
    expect([times.min, times.sort[4]]).to match([be < 0.1, be < 1])
    File.unlink(File.join(server.dir, "hang"))
    held.each(&:close)
  end

  it "is ready when workers are, and not while they boot or the server drains" do
    config = %(after_fork { sleep 0.01 until File.exist?("go") }\n)
    server = serve(config: config, options: { DrainDelay: 60 })
    booting = Eventually.eventually { monitor.get("/readyz") rescue nil } # rubocop:disable Style/RescueModifier
    expect(booting).to have_attributes(status: 503, body: "booting, 0 of 2 workers ready\n")
    server.write("go", "")
    ready
    expect(monitor.get("/readyz")).to have_attributes(status: 200, body: "serving, 2 of 2 workers ready\n")
    server.signal(:TERM)
    monitor.await { |status| status["phase"] == "draining" }
    expect(monitor.get("/readyz").status).to eq(503)
    expect(monitor.get("/healthz").status).to eq(200)
    server.signal(:QUIT)
    server.wait
  end

  describe "when it is told to act" do
    it "restarts, resizes and stops the server, by its signals" do
      server = serve
      ready
      before = server.workers
      expect(monitor.post("/phased-restart")).to have_attributes(status: 202, body: %({"sent":"HUP"}\n))
      monitor.await { |status| status["generation"] == 2 && (status["workers"].map { |one| one["pid"] } & before).empty? }
      monitor.post("/workers/+1")
      monitor.await { |status| status["workers_ready"] == 3 }
      monitor.post("/workers/-1")
      monitor.await { |status| status["workers"].size == 2 }
      expect(monitor.post("/stop").status).to eq(202)
      expect(server.wait.exitstatus).to eq(0)
    end

    it "does nothing that a browser's page or a GET asks for" do
      serve
      ready
      answers = [monitor.post("/stop", "Origin" => "http://localhost:9394"), monitor.get("/stop"), monitor.ask("DELETE", "/stop"), monitor.post("/")]
      expect(answers.map(&:status)).to eq([403, 404, 405, 404])
      expect(monitor.status).to include("phase" => "serving")
    end
  end

  describe "on a port (ControlListen)" do
    token = "0123456789abcdef"

    it "wants the token, and lets nobody act" do
      outside = FreePort.keep do |port|
        serve(options: { ControlListen: port, ControlToken: token })
        ready
        MonitorClient.new(port)
      end
      wrong = [{}, { "Authorization" => "Bearer #{token.reverse}" }, { "Authorization" => "Bearer #{token}x" }]
      expect(wrong.map { |headers| outside.get("/metrics", headers).status }).to eq([401, 401, 401])
      expect(outside.get("/metrics", "Authorization" => "Bearer #{token}").status).to eq(200)
      expect(outside.get("/status.json?token=#{token}").status).to eq(200)
      expect(outside.post("/stop?token=#{token}").status).to eq(403)
    end

    {
      "0.0.0.0:9394" => /ControlListen must be a loopback address and port/, "example.com:80" => /must be a loopback address/,
      "127.0.0.1:0" => /must be a loopback address/, "127.0.0.256:9394" => /must be a loopback address/,
      "127.0.0.01:9394" => /must be a loopback address/
    }.each do |place, message|
      it "is refused at #{place}" do
        server = Server.fail_to_start(ru: app, options: { ControlListen: place, ControlToken: token })
        expect([server.status.exitstatus, server.log]).to match([1, message])
      end
    end

    it "is refused without a token, or with a short one" do
      server = Server.fail_to_start(ru: app, options: { ControlListen: "9394" })
      expect([server.status.exitstatus, server.log]).to match([1, /ControlListen needs ControlToken/])
      server = Server.fail_to_start(ru: app, options: { ControlListen: "9394", ControlToken: "short" })
      expect([server.status.exitstatus, server.log]).to match([1, /ControlToken must be 16 or more/])
      # The log may have many readers.
      expect(server.log).not_to include("short")
    end
  end

  describe "when the server changes" do
    # Asks all the time. The pids of the masters that have answered.
    def answered
      pids = []
      done = false
      asking = Thread.new { pids << monitor.status["pid"] until done }
      yield
      done = true
      asking.value
      pids
    ensure
      done = true
    end

    it "answers without a gap, first the old master's and then the new one's (USR2)" do
      server = serve
      ready
      old = server.master
      pids = answered do
        server.signal(:USR2)
        monitor.await { |status| status["pid"] != old && status["phase"] == "serving" }
        Eventually.eventually { server.ended? }
      end
      expect(pids.uniq).to eq([old, server.master])
      expect(File.read(@pid_file).to_i).to eq(server.master)
    end

    it "answers on where a new master fails, and again where one fails later" do
      server = serve(options: { AutoQuit: false })
      ready
      old = server.master
      pids = answered do
        server.write("config.ru", "raise 'broken'")
        server.signal(:USR2)
        Eventually.eventually { server.log.include?("this one carries on") }
      end
      expect(pids.uniq).to eq([old])
      server.write("config.ru", app_text)
      server.signal(:USR2)
      other = monitor.await { |status| status["pid"] != old && status["phase"] == "serving" }["pid"]
      Process.kill(:KILL, other)
      expect(monitor.await { |status| status["pid"] == old }).to include("phase" => "serving")
    end

    define_method(:app_text) { app }

    it "is somewhere else from a HUP on, or nowhere" do
      other = File.join(Dir.mktmpdir("fastrack-monitor").tap { |dir| @dirs = [*@dirs, dir] }, "other.control")
      server = serve(config: "")
      ready
      server.write("fastrack.rb", %(control_path "#{other}"\n))
      server.signal(:HUP)
      moved = MonitorClient.new(other)
      expect(moved.await { |status| status["generation"] == 2 && status["phase"] == "serving" }).to include("pid" => server.master, "workers_wanted" => 2)
      expect(File.exist?(monitor.path)).to be(false)
      Eventually.eventually { server.log.scan("Fastrack is ready").size == 2 }
      server.write("fastrack.rb", %(control_path "none"\n))
      server.signal(:HUP)
      Eventually.eventually { server.log.scan("Fastrack is ready").size == 3 }
      expect([File.exist?(other), server.get.status]).to eq([false, 200])
    end

    it "makes its socket again at HUP where somebody has removed it" do
      server = serve
      ready
      File.unlink(monitor.path)
      server.signal(:HUP)
      expect(monitor.await { |status| status["generation"] == 2 }).to include("pid" => server.master)
    end

    it "leaves nothing behind where the master is killed, and a new start takes the socket's file over" do
      server = serve
      ready
      server.signal(:KILL)
      Eventually.eventually { server.ended? && server.processes.empty? }
      expect { monitor.status }.to raise_error(Errno::ECONNREFUSED)
      again = Server.start(ru: app, options: { MaxWorkers: 1, Pid: @pid_file })
      expect(monitor.await { |status| status["phase"] == "serving" }).to include("pid" => again.master)
    end
  end

  it "is no end of the master by an exception of its own" do
    failing = Class.new { def method_missing(name, *) = raise(FrozenError, "no #{name}") }.new
    allow(Fastrack::Log).to receive(:line)
    thread = Fastrack::MonitorThread.new(nil, [], failing)
    3.times { thread.publish(1, true, nil) }
    [thread.listen, thread.exited(nil, nil), thread.close]
    expect(Fastrack::Log).to have_received(:line).with(/\Athe monitor fails: .*\((?:NoMethodError|FrozenError)\)\z/, :error).once
  end

  it "keeps no other thread of the master waiting while it begins to listen, however long that takes" do
    script = <<~RUBY
      require "fastrack/native"
      monitor = Fastrack::Monitor.start(Fastrack::Scoreboard.new(nil), [ARGV.first, nil, nil], "1", 1, false)
      ticks = 0
      Thread.new { loop { sleep 0.001 and ticks += 1 } }
      before = ticks
      monitor.listen
      puts ticks - before, File.socket?(ARGV.first)
    RUBY
    # The socket gets its name half a second late.
    slow = %w[strace -f -qq -e trace=rename,renameat,renameat2 -o /dev/null -e inject=rename,renameat,renameat2:delay_enter=500000]
    Dir.mktmpdir do |dir|
      output, status = Open3.capture2e(*slow, "true")
      skip "strace cannot delay calls here: #{output}" unless status.success?
      output, = Open3.capture2e(*slow, RbConfig.ruby, "-I", Server::LIB, "-e", script, File.join(dir, "control"))
      expect(output.lines(chomp: true)).to match([satisfy { |ticks| ticks.to_i > 20 }, "true"])
    end
  end

  it "gives no descriptor of its own to a worker, nor to the rest of the master" do
    server = serve
    ready
    sockets = ->(pid) { ProcessTable.descriptors(pid).values.compact.grep(/socket:/) }
    alone = Server.start(ru: app, options: { MaxWorkers: 2 })
    alone.await_workers(2)
    Eventually.eventually { alone.log.include?("Fastrack is ready") }
    # But for the one that gives the monitor its orders.
    expect(sockets.call(server.master).size).to eq(sockets.call(alone.master).size + 1)
    streams = Array.new(3) { monitor.connect.tap { |socket| socket.write("GET /events HTTP/1.1\r\nHost: h\r\n\r\n") } }
    streams.each { |socket| expect(socket.readpartial(12)).to eq("HTTP/1.1 200") }
    before = server.workers
    server.signal(:HUP)
    server.await_workers(2) { |found| (found & before).empty? }
    inodes = File.readlines("/proc/net/unix").select { |line| line.end_with?("#{monitor.path}\n") || line.include?(".control.") }.map { |line| line.split[6] }
    expect(inodes.size).to be >= 4
    open = [server.master, *server.workers].flat_map { |pid| ProcessTable.descriptors(pid).values }
    expect(open.compact.grep(/socket:\[(#{inodes.join("|")})\]/)).to eq([])
    streams.each(&:close)
  end

  it "lets a thousand clients, slow ones too, neither slow the server down nor keep others out" do
    server = serve
    ready
    rss = -> { File.read("/proc/#{server.master}/statm").split[1].to_i * Etc.sysconf(Etc::SC_PAGESIZE) }
    before = rss.call
    held = []
    1000.times do |number|
      socket = Socket.new(:UNIX, :STREAM)
      begin
        socket.connect_nonblock(Addrinfo.unix(monitor.path))
      rescue IO::WaitWritable
        sleep 0.01 # its backlog is full
        retry
      end
      socket.write_nonblock(["", "GET /metrics", "GET /status.json HTTP/1.1\r\nHost: h\r\n\r\n"][number % 3])
      held << socket
      held.shift.close if held.size > 200
      expect(server.get.status).to eq(200) if (number % 100).zero?
    end
    expect(ready["workers_ready"]).to eq(2)
    expect(server.get.status).to eq(200)
    expect(rss.call - before).to be < 32 * 1024 * 1024
    held.each(&:close)
  end

  it "is measured by bench/monitor", once: "a program of bench/" do
    output, status = Open3.capture2e(RbConfig.ruby, "-w", File.join(Server::ROOT, "bench/monitor"), "--rounds", "1", "--seconds", "1")
    expect([status.exitstatus, output]).to match([0, /^master: PSS .*^scraped each second: .*^hello alone .*^hello beside 1,000 .*^the thousand take /m])
  end

  describe "its page" do
    it "is one file without anything from elsewhere, with the numbers as they come" do
      serve
      ready
      page = monitor.get("/")
      expect(page.head).to match(/^content-security-policy: default-src 'none';/i)
      expect(page.body).not_to match(%r{(?:src|href)=|https?://(?!www\.w3\.org/2000/svg)})
      socket = monitor.connect
      socket.write("GET /events HTTP/1.1\r\nHost: h\r\n\r\n")
      text = +""
      Eventually.eventually { (text << socket.read_nonblock(65_536, exception: false).to_s).scan("data: {").size >= 2 }
      expect(JSON.parse(text[/^data: (.*)$/, 1])).to include("phase" => "serving")
      socket.close
    end

    it "shows in a browser who waits, and who has died and why" do
      skip AppChromium.driver_missing if AppChromium.driver_missing

      port = nil
      server = FreePort.keep { |free| serve(ru: HangingApp::RU, options: { RequestTimeout: 0, ControlListen: port = free, ControlToken: "0123456789abcdef" }) }
      ready
      held = hung(server, "/wait", 2)
      waiting = Array.new(5) { server.connect.tap { |socket| socket.write("GET / HTTP/1.0\r\n\r\n") } }
      AppChromium.drive do |browser|
        browser.visit("http://127.0.0.1:#{port}/?token=0123456789abcdef")
        text = ->(id) { browser.run("return document.getElementById('#{id}').innerText").to_s }
        Eventually.eventually { text.call("facts").match?(/\b5\s+clients wait/) }
        expect(text.call("workers")).to match(/\d s\s+GET \/wait$/)
        victim = server.workers.first
        server.signal(:KILL, to: victim)
        Eventually.eventually { text.call("last").match?(/was killed by SIGKILL while serving GET \/wait/) && text.call("exits") == "signal 1" }
      end
    ensure
      server&.write("go", "")
      [*held, *waiting].each(&:close)
    end

    it "shows each worker in a browser" do
      skip AppChromium.driver_missing if AppChromium.driver_missing

      port = nil
      FreePort.keep { |free| serve(options: { ControlListen: port = free, ControlToken: "0123456789abcdef" }) }
      status = ready
      AppChromium.drive do |browser|
        browser.visit("http://127.0.0.1:#{port}/?token=0123456789abcdef")
        Eventually.eventually { browser.run("return document.title") == "Fastrack serving" }
        rows = browser.run("return [...document.querySelectorAll('#workers tr')].map(row => row.innerText.split(/\\s+/).slice(0, 4))")
        expect(rows).to match_array(status["workers"].map { |one| [one["nr"], one["pid"], 1, "idle"].map(&:to_s) })
        expect(browser.run("return document.querySelectorAll('#time rect').length")).to be > 5
      end
    end
  end

  describe "`fastrack status`" do
    it "finds the server by its pid file, and shows its workers in 80 columns, without colours in a file" do
      server = serve(ru: HangingApp::RU, options: { RequestTimeout: 0 })
      ready
      held = hung(server, "/wait", 1)
      output, status = fastrack("status", "-P", @pid_file)
      expect([status, output]).to match([0, /^Fastrack \S+  pid #{server.master}  serving  generation 1  up /])
      server.workers.each { |pid| expect(output).to match(/^ +\d +#{pid} +1 (?:busy|idle) /) }
      expect(output).to match(/GET \/wait$/)
      expect(output.lines.map { |line| line.chomp.length }.max).to be <= 80
      expect(output).not_to include("\e")
      server.write("go", "")
      held.each(&:close)
    end

    it "gives JSON, and finds the server by its ConfigFile or its socket" do
      server = serve
      ready
      config = server.write("c.rb", "pid #{@pid_file.inspect}\n")
      [["-c", config], ["--control", monitor.path]].each do |place|
        output, status = fastrack("status", "--json", *place)
        expect([status, JSON.parse(output)]).to match([0, include("pid" => server.master, "phase" => "serving")])
      end
    end

    it "finds it by a ConfigFile that names its files from WorkingDirectory on" do
      server = serve(options: { Pid: nil }, config: <<~RUBY)
        working_directory __dir__
        pid "app.pid"
      RUBY
      config = Dir.glob("#{server.dir}/*.rb").first
      output, status = fastrack("status", "--json", "-c", config)
      expect([status, JSON.parse(output[/^\{.*/m])]).to match([0, include("pid" => server.master, "phase" => "serving")])
    end

    it "tells what /proc does where there is no monitor" do
      server = serve(options: { ControlPath: "none" })
      Eventually.eventually { server.workers.all? { |pid| ProcessTable.title(pid).start_with?("fastrack worker[") } }
      output, status = fastrack("status", "-P", @pid_file)
      expect([status, output]).to match([0, /^Fastrack   pid #{server.master}  running  up /])
      server.workers.each { |pid| expect(output).to match(/^ +\d +#{pid} /) }
    end

    # What a terminal of 80 columns has got by the time that this is true of it.
    define_method(:watched) do |*place, &enough|
      command = [RbConfig.ruby, "-w", Server::COMMAND, "status", "--watch", *place]
      PTY.spawn(Server::CLEAN_ENVIRONMENT.merge("TERM" => "xterm", "NO_COLOR" => nil), *command, chdir: Dir.tmpdir) do |screen, keyboard, pid|
        screen.winsize = [24, 80]
        text = +""
        Eventually.eventually(Server::DEADLINE, -> { text }) do
          text << screen.readpartial(65_536) if screen.wait_readable(1)
          enough.call(text)
        end
        # As Ctrl-C.
        keyboard.write("\u0003")
        return [text, Process.wait2(pid).last.exitstatus]
      end
    end

    it "shows them with colours in a terminal of 80 columns, again each second, until Ctrl-C (--watch)" do
      server = serve(ru: HangingApp::RU, options: { RequestTimeout: 0 })
      ready
      held = hung(server, "/wait", 1)
      long = server.connect.tap { |socket| socket.write("GET /#{"sleep" * 30} HTTP/1.1\r\nHost: h\r\n\r\n") }
      text, status = watched("-P", @pid_file) { |shown| shown.scan("\e[H\e[J").size >= 3 && shown.end_with?("\n") }
      expect(status).to eq(0)
      expect(text).to match(/\e\[33mbusy\e\[0m.* GET \/wait\r$/).and match(/\e\[32m(?:idle|serving)\e\[0m/)
      lines = text.gsub(/\e\[[\d;]*[A-Za-z]/, "").split("\r\n")
      expect(lines.map(&:length).max).to be <= 80
      server.workers.each { |pid| expect(lines.grep(/^ +\d +#{pid} +1 /).size).to be >= 2 }
    ensure
      server.write("go", "")
      [*held, long].each(&:close)
    end

    it "watches over a pid file alone, too" do
      server = serve(options: { ControlPath: "none" })
      Eventually.eventually { server.workers.all? { |pid| ProcessTable.title(pid).start_with?("fastrack worker[") } }
      text, status = watched("-P", @pid_file) { |shown| shown.scan("\e[H\e[J").size >= 2 && shown.end_with?("\n") }
      expect([status, text]).to match([0, /^\e\[H\e\[JFastrack   pid #{server.master}  running  up .*\r$/])
      server.workers.each { |pid| expect(text).to match(/^ +\d +#{pid} .* \d+% .* \d+ MB /) }
      expect(text.gsub(/\e\[[\d;]*[A-Za-z]/, "").split("\r\n").map(&:length).max).to be <= 80
    end

    it "gives up on a master that is stopped, rather than wait for it" do
      server = serve
      ready
      server.signal(:STOP)
      output, status = fastrack("status", "--control", monitor.path)
      expect([status, output]).to eq([1, "fastrack: the monitor at #{monitor.path} does not answer\n"])
    ensure
      server.signal(:CONT)
    end

    it "leaves a process alone that has the number of a server that is gone" do
      Dir.mktmpdir do |dir|
        stranger = spawn("sleep", "60")
        File.write(pid_file = File.join(dir, "app.pid"), "#{stranger}\n")
        File.utime(Time.now - 60, Time.now - 60, pid_file)
        expect(fastrack("stop", "-P", pid_file)).to match([/no server runs: .*app\.pid has no running process/, 1])
        expect(Process.wait(stranger, Process::WNOHANG)).to be_nil
      ensure
        Process.kill(:KILL, stranger)
        Process.wait(stranger)
      end
    end

    it "says that no server runs, with status 1" do
      output, status = fastrack("status", "-P", "/nowhere/app.pid")
      expect([status, output]).to match([1, /\Afastrack: no server runs: nobody listens at \/nowhere\/app\.control, and/])
      expect(fastrack("status")).to match([/\Afastrack: no server found: name its/, 1])
    end
  end

  it "takes commands from the command line: workers +1 and -1, phased-restart, restart, stop" do
    server = serve
    ready
    place = ["-P", @pid_file]
    expect(fastrack("workers", "+2", *place)).to match([/\ATTIN sent.*TTIN sent/m, 0])
    monitor.await { |status| status["workers_ready"] == 4 }
    expect(fastrack("workers", "-1", *place)).to match([/TTOU sent/, 0])
    monitor.await { |status| status["workers_wanted"] == 3 }
    expect(fastrack("phased-restart", *place)).to match([/\AHUP sent/, 0])
    monitor.await { |status| status["generation"] == 2 && status["workers_ready"] == 2 }
    expect(fastrack("restart", *place)).to match([/\AUSR2 sent/, 0])
    monitor.await { |status| status["pid"] != server.pid && status["phase"] == "serving" }
    expect(fastrack("stop", *place)).to match([/\ATERM sent/, 0])
    Eventually.eventually { server.processes.empty? }
    expect(fastrack("workers", "much")).to match([/\Afastrack: workers takes how many more or less/, 1])
  end
end
