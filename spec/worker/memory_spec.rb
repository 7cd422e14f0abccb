# frozen_string_literal: true

require_relative "../../lib/fastrack/configuration"
require_relative "../../lib/fastrack/master/lingering"
require_relative "../../lib/fastrack/memory/limit"
require_relative "../../lib/fastrack/memory/supervisor"
require "support/http_peer"
require "time"

RSpec.describe "The memory of workers", exec: "figures of memory", once: "cgroups and proc(5) tell the figures, not Ruby" do
  # GET /grow?30 keeps 30 MB, everything else nothing. Answers with the worker's pid, /restarts with how many there were.
  let(:app) { <<~'RUBY' }
    $kept = []
    run lambda { |env|
      sleep 0.3 if env["PATH_INFO"] == "/slow"
      $kept << ("x" * (env["QUERY_STRING"].to_i << 20)) if env["PATH_INFO"] == "/grow"
      body = env["PATH_INFO"] == "/restarts" ? Fastrack.stats[:restarts].slice(:request_limit, :memory).values.join(" ") : Process.pid
      [200, {}, [body.to_s]]
    }
  RUBY

  def lines(server, pattern) = server.log.lines(chomp: true).grep(pattern)

  # Workers of this process, as those of a master.
  def group(workers)
    def workers.source_pid = Process.pid
    def workers.mold = nil
    def workers.lingering = Fastrack::Lingering.new(self)
    workers
  end

  # In MB.
  def resident(pid) = File.read("/proc/#{pid}/statm").split[1].to_i * Etc.sysconf(Etc::SC_PAGESIZE) >> 20

  describe "MaxMemoryPerChild" do
    it "has a worker replaced after the response with which it has outgrown it, and no request fails" do
      server = Server.start(ru: app, options: { MaxWorkers: 1, MaxMemoryPerChild: "120M" })
      first = server.get.body.to_i
      8.times { expect(server.get("/grow?20").status).to eq(200) }
      eventually(60) do
        response = server.get
        expect(response.status).to eq(200)
        response.body.to_i != first
      end
      line = /\Afastrack: worker 0 \(pid #{first}\) takes \d+ MB of memory after \d+ requests; MaxMemoryPerChild is 120 MB: recycling it\z/
      expect(lines(server, /memory/)).to match([line])
      eventually { server.get("/restarts").body.match?(/\A0 [1-9]\z/) }
    end

    it "replaces no worker whose successor would take as much, and says so once" do
      server = Server.start(ru: app, options: { MaxWorkers: 2, MaxMemoryPerChild: "1M" })
      pids = server.await_workers(2)
      eventually { Array.new(4) { Thread.new { server.get("/slow").body.to_i } }.map(&:value).uniq.size == 2 }
      eventually { lines(server, /recycling would gain nothing/).any? }
      expect([server.workers, lines(server, /memory/).size]).to eq([pids, 1])
    end
  end

  describe "with a socket that the app has taken over" do
    # GET /socket echoes lines; see `app` for the rest.
    let(:with_socket) { <<~'RUBY' + app }
      map("/socket") do
        run(lambda do |env|
          io = env["rack.hijack"].call
          io.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
          Thread.new { while (line = io.gets) do io.write("#{Process.pid} #{line}") end }
          [-1, {}, []]
        end)
      end
    RUBY

    def socket(server) = HttpPeer.new(server).write("GET /socket HTTP/1.1\r\nHost: a\r\n\r\n").tap { |peer| peer.read_until(/\r\n\r\n/) }

    def echo(peer, text) = peer.write("#{text}\n").read_until(/#{text}\n/)[/(\d+) #{text}\n/, 1].to_i

    it "a worker that has outgrown MaxMemoryPerChild lingers for it" do
      server = Server.start(ru: with_socket, options: { MaxWorkers: 1, MaxMemoryPerChild: "120M" })
      old = server.get.body.to_i
      peer = socket(server)
      8.times { server.get("/grow?20") }
      eventually(60) { server.get.body.to_i != old }
      server.await_log("worker 0 (pid #{old}) lingers for 0 streams and 1 socket")
      expect(echo(peer, "still")).to eq(old)
    end

    it "a worker that lingers is the first to go where MaxMemory is reached" do
      server = Server.start(ru: with_socket, options: { MaxWorkers: 1, MaxMemory: "250M" })
      old = server.get("/grow?60").body.to_i
      peer = socket(server)
      server.signal(:HUP)
      server.await_log("(pid #{old}) lingers")
      expect(echo(peer, "still")).to eq(old)
      eventually(60) { server.get("/grow?10") && server.log.include?("(pid #{old}) ends its streams and sockets: memory is short") }
      expect([peer.read_to_end && peer.ending, server.log[/.*memory is short/m]]).to match([:closed, /\A(?!.*recycling worker)/m])
    end
  end

  describe "MaxMemory" do
    it "has the largest worker replaced, and no other" do
      server = Server.start(ru: app, options: { MaxWorkers: 2, MaxMemory: "180M" })
      pids = server.await_workers(2)
      largest = server.get("/grow?1").body.to_i
      # All in one of them, whoever answers.
      eventually(60) do
        server.get("/grow?5") if server.workers.include?(largest) && lines(server, /recycling worker/).empty?
        !server.workers.include?(largest) || lines(server, /recycling worker/).any?
      end
      line = eventually { lines(server, /recycling worker/).first }
      expect(line).to match(/\Afastrack: memory: \d+ MB in use, limit 180 MB \(MaxMemory\): recycling worker \d \(pid \d+\), the largest: \d+ MB/)
      gone = line[/pid (\d+)/, 1].to_i
      expect(pids).to include(gone)
      server.await_workers(2) { |found| !found.include?(gone) }
      eventually { server.get("/restarts").body.match?(/\A0 [1-9]\z/) }
    end

    it "has the next worker replaced 2 s or more after the first, and not before that one's successor serves" do
      # GET /?PID:30 has that worker keep 30 MB.
      keeping = <<~'RUBY'
        run lambda { |env|
          pid, size = env["QUERY_STRING"].split(":").map(&:to_i)
          $kept = "x" * (size << 20) if pid == Process.pid
          sleep 0.05
          [200, {}, [Process.pid.to_s]]
        }
      RUBY
      config = %(log_format "timestamp"\nafter_fork { sleep 0.02 while File.exist?("hold") }\n)
      server = Server.start(ru: keeping, options: { MaxWorkers: 2, MaxMemory: "230M" }, config: config)
      first, second = server.await_workers(2)
      keep = lambda do |pid, size|
        eventually(60) { Array.new(4) { Thread.new { server.get("/?#{pid}:#{size}").body.to_i } }.map(&:value).include?(pid) }
      end
      [first, second].each { |pid| keep.call(pid, 60) }
      server.write("hold", "")
      keep.call(first, 200)
      eventually(60) { server.workers.size == 2 && !server.workers.include?(first) }
      # The second one is too large by itself. It is the only one that serves.
      keep.call(second, 220)
      found = eventually(60) { server.whole_log.lines.grep(/recycling worker/).then { |all| all if all.size == 2 } }
      expect(found.map { |line| line[/\(pid (\d+)\)/, 1].to_i }).to eq([first, second])
      times = found.map { |line| Time.parse(line[/\A\S+/]) }
      expect(times.last - times.first).to be >= Fastrack::MemoryGuard::SPACING.begin
      5.times { expect(server.get("/?0:0").body.to_i).to eq(second) }
      File.unlink(File.join(server.dir, "hold"))
      server.await_workers(2) { |now| (now & [first, second]).empty? }
      expect(server.get("/?0:0").status).to eq(200)
    end

    it "waits twice as long each time while workers live for less than 10 s" do
      guard = Fastrack::MemoryGuard.new(group([]), Fastrack::MemoryLimit.new(500 << 20, "MaxMemory"), auto: true)
      allow(Fastrack::Log).to receive(:line)
      worker = double(nr: 1, pid: 1, requests: 1, spawned_at: 0, recycle: nil)
      waits = [5, 9, 30].map { |now| [guard.send(:recycle, worker, 1, 1, 1, now), guard.send(:await_end, now), guard.instance_variable_get(:@settled_at) - now].last }
      expect(waits).to eq([4, 8, 2])
    end

    it "names generation 0 where that is what grows, and replaces no worker for it" do
      grows = %(Thread.new { sleep 0.02 until File.exist?("grow"); $large = "x" * (300 << 20) }\n)
      server = Server.start(ru: grows + app, fastrack: true, options: { MaxWorkers: 2, MaxMemory: "200M" })
      pids = server.await_workers(2)
      eventually { Array.new(4) { Thread.new { server.get("/slow").body.to_i } }.map(&:value).uniq.size == 2 }
      server.write("grow", "")
      line = eventually(60) { lines(server, /generation 0 is what is large/).first }
      expect(line).to match(/\Afastrack: memory: \d+ MB in use, limit 200 MB \(MaxMemory\), with 2 workers of [\d.]+ MB, [\d.]+ MB, and generation 0's [123]\d\d MB: generation 0 is/)
      expect([server.workers, lines(server, /recycling worker/)]).to eq([pids, []])
    end

    it "does not count against a worker what it shares with a large generation 0 since its fork" do
      handle = Struct.new(:pid, :nr, :requests, :spawned_at, :recycled) do
        def serving? = true
        def lingering? = false
        def memory = Fastrack::ProcessMemory.of(pid)
        def recycle(_) = (self.recycled = true)
      end
      workers = [1, 2].map { |pid| handle.new(pid, pid, 1, 0.0) }
      # The second one was forked when generation 0 had grown by 300 MB.
      anonymous = { 1 => 10, 2 => 310, Process.pid => 310 }.transform_values { |mb| mb << 20 }
      allow(Fastrack::ProcessMemory).to receive(:resident) { |pid| [anonymous[pid] + 1, anonymous[pid]] }
      allow(Fastrack::ProcessMemory).to receive(:of) { |pid| Fastrack::ProcessMemory.new(160 << 20, (pid == "self" ? 300 : 10) << 20) }
      said = []
      allow(Fastrack::Log).to receive(:line) { |text| said << text }
      guard = Fastrack::MemoryGuard.new(group(workers), Fastrack::MemoryLimit.new(200 << 20, "MaxMemory"), auto: false)
      20.times { |turn| guard.step(100.0 + (turn * 10)) }
      expect([workers.map(&:recycled), said.size, said.first]).to match([[nil, nil], 1, /generation 0 is what is large/])
    end

    it "replaces nobody where fresh workers take as much, and says so once" do
      server = Server.start(ru: app, options: { MaxWorkers: 2, MaxMemory: "1M" })
      pids = server.await_workers(2)
      eventually { lines(server, /recycling gains nothing/).any? }
      3.times { server.get }
      expect([server.workers, lines(server, /memory/).size]).to eq([pids, 1])
    end

    it "is what a HUP has brought" do
      config = ->(size) { %(max_memory "#{size}"\n) }
      server = Server.start(ru: app, options: { MaxWorkers: 2 }, config: config.call("4G"))
      eventually { server.log.include?("Fastrack is ready") }
      server.write("fastrack.rb", config.call("1M"))
      server.signal(:HUP)
      expect(eventually { lines(server, /\Afastrack: memory: /).first }).to include("limit 1.0 MB (MaxMemory)")
    end

    it "is not there in development, where a debugger may hold the one worker, unless it is set" do
      find = ->(given) { Fastrack::MemoryLimit.find(Fastrack::Configuration.new({ user_supplied_options: [], **given }, environment: { "RACK_ENV" => "development" })) }
      allow(Fastrack::MemoryLimit::CgroupLimit).to receive(:find).and_return(:cgroup)
      expect([{}, { MaxMemory: "0" }].map(&find)).to eq([nil, nil])
      expect([find.call({ MaxWorkers: "auto" }), find.call({ MaxMemory: "1G" }).bytes]).to eq([:cgroup, 1 << 30])
    end
  end

  it "keeps a server that leaks within its cgroup: the kernel kills nobody, and no request fails", alone: "the master must look in time" do
    group = MemoryCgroup.make(400 << 20) or skip("no memory cgroup can be made here")
    server = Server.start(ru: app, options: { MaxWorkers: 2, MaxRequestPerChild: 0 }, wrapper: group.wrapper)
    server.await_workers(2)
    statuses = []
    eventually(90) do
      # Near the limit as a leak would grow, before that faster.
      near = group.used > 320 << 20
      sleep 0.1 if near
      statuses << server.get("/grow?#{near ? 1 : 5}").status
      lines(server, /recycling worker/).size >= 2
    end
    expect(statuses.uniq).to eq([200])
    expect(server.log).not_to include("SIGKILL")
    expect(lines(server, /recycling worker/)).to all(include("95 % of the cgroup's 400 MB"))
  ensure
    server&.stop
    eventually { group.processes.empty? } if group
    group&.remove
  end

  it "warns of a number of workers that will not fit once all have grown" do
    server = Server.start(ru: app, options: { MaxWorkers: 4, MaxMemory: "200M" })
    server.await_workers(4)
    server.get("/grow?60")
    line = eventually(30) { lines(server, /will not fit/).first }
    expect(line).to match(/\Afastrack: memory: 4 workers will not fit, [12] would \(limit 200 MB \(MaxMemory\), shared \d+ MB, each worker \d+ MB\)\z/)
  end

  it "goes back to the system when a worker is idle after large uploads and large responses" do
    app = <<~'RUBY'
      run lambda { |env|
        size = env["rack.input"].read.size
        [200, {}, [env["PATH_INFO"] == "/large" ? "x" * (16 << 20) : size.to_s]]
      }
    RUBY
    server = Server.start(ru: app, options: { MaxWorkers: 1 })
    worker = server.await_workers(1).first
    5.times { server.get }
    before = resident(worker)
    8.times { expect(server.post("/", "x" * (16 << 20)).body).to eq((16 << 20).to_s) }
    eventually { resident(worker) < before + 15 }
    8.times { expect(server.get("/large").body.bytesize).to eq(16 << 20) }
    eventually { resident(worker) < before + 15 }
  end

  describe "the limit" do
    def limit(membership, files, total = 1 << 40)
      Dir.mktmpdir("fastrack-memory") do |dir|
        files.merge("membership" => membership).each { |name, text| Folder.write(dir, name, text) }
        found = Fastrack::MemoryLimit::CgroupLimit.find(Fastrack::Cgroup.new("memory", membership: "#{dir}/membership", root: dir), total)
        found && [found.bytes, found.used([])]
      end
    end

    v1 = { "memory/app/memory.limit_in_bytes" => "1000\n", "memory/app/memory.usage_in_bytes" => "900\n",
           "memory/app/memory.stat" => "active_file 1\ninactive_file 1\ntotal_inactive_file 100\ntotal_active_file 50\n" }
    v2 = { "app/memory.max" => "2000\n", "app/memory.current" => "900\n", "app/memory.stat" => "anon 5\ninactive_file 100\nactive_file 50\n" }

    top = { "memory.max" => "1000", "memory.current" => "950", "memory.stat" => "" }
    { "95 % of the cgroup's, version 1, and caches of files are not in use" => ["4:memory:/app\n", v1, [950, 750]],
      "95 % of the cgroup's, version 2" => ["0::/app\n", v2, [1900, 750]],
      "the smallest on the way up" => ["0::/app\n", v2.merge(top), [950, 950]],
      "that from which on the kernel slows down" => ["0::/app\n", v2.merge("app/memory.high" => "1000"), [950, 750]],
      "none without one" => ["0::/app\n", { "app/memory.max" => "max\n" }, nil],
      "none with more than the machine has" => ["0::/app\n", v2, nil, 1500] }.each do |what, (membership, files, found, total)|
      it("is #{what}") { expect(limit(membership, files, total || (1 << 40))).to eq(found) }
    end
  end

  it "counts the proxies, too" do
    others = Array.new(2) { Process.spawn("sleep", "60") }
    limit = Fastrack::MemoryLimit.new(1 << 40, "MaxMemory")
    each = others.sum { |pid| Fastrack::ProcessMemory.resident(pid).first }
    expect(limit.used([], proxies: others) - limit.used([])).to be_within(4 << 20).of(each)
    expect(limit.used([], proxies: others, exact: true)).to be > limit.used([], exact: true) - (4 << 20) + others.sum { |pid| Fastrack::ProcessMemory.of(pid).pss }
  ensure
    others.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
  end

  it "is no end of the master when a worker dies while it is measured" do
    gone = Struct.new(:pid, :requests, :serving?, :memory).new(Process.spawn("true").tap { |pid| Process.wait(pid) }, 5, true)
    expect(Fastrack::MemoryGuard.new(group([gone]), Fastrack::MemoryLimit.new(500 << 20, "MaxMemory"), auto: true).fit).to be_nil
  end
end
