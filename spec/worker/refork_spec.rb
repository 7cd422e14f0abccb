# frozen_string_literal: true

require "support/refork_helpers"

RSpec.describe "`fastrack refork`", linux: "a subreaper (prctl(2))" do
  include ReforkHelpers

  [1, 3].each do |threads|
    it "has all workers know what one has learned, and no request is lost for it, with MaxThreads #{threads}" do
      # Workers are recycled meanwhile.
      server = serving(MaxRequestPerChild: 1000, MaxThreads: threads)
      before = server.workers
      loop = ClientLoop.run(server, paths: ["/keep"] * 3, kept: true) do
        refork(server).then { |output, status| expect(status).to eq(0), output }
        settled(server, before)
      end
      mold, = roles(server)["mold"]
      expect([loop.failures, remembered(server).uniq, server.get.body.split[1].to_i]).to eq([[], [mold.to_s], server.master])
      server.await_log(/^fastrack: refork: generation 2 from worker \d \(pid #{mold}, \d+ requests\): 3 workers \d+ MB -> \d+ MB$/)
    end
  end

  it "runs the hooks of the mold's workers as those of the master's" do
    server, mold = reforked
    workers = roles(server)["worker"]
    notes = server.lines_of("notes")
    expect(notes.grep(/ #{mold} /).map { |line| line[/\w+/] }.join(" ")).to eq("after refork#{" before" * 4}")
    expect(notes.grep(/\Aafter/).map { |line| line.split[1].to_i }.last(3)).to match_array(workers)
    expect(notes.grep(/shutdown #{mold}/)).to eq([])
    server.stop
    expect(server.lines_of("notes").grep(/shutdown/).map { |line| line.split.last.to_i }).to include(mold, *workers)
  end

  it "calls before_fork of a puma.rb once in the mold, too" do
    config = %(before_fork { File.write("calls", "\#{Process.pid}\\n", mode: "a") }\nworkers 3\n)
    server = Server.ready(ru: ReforkHelpers::APP, fastrack: true, files: { "puma.rb" => config }, options: { ConfigFile: "puma.rb", ControlPath: "control" })
    first = server.molds.first
    mold = warmed(server)
    before = server.workers
    refork(server)
    settled(server, before)
    expect(server.lines_of("calls").map(&:to_i)).to eq([first, mold])
  end

  it "has one full mark more done by the mold when the worker had some, unless code forgets for it which methods it calls" do
    config = <<~'RUBY'
      note = ->(full) { File.write("marks", "#{Process.pid} #{full}\n", mode: "a") }
      GC.singleton_class.prepend(Module.new { define_method(:start) { |full_mark: true, **others| note.call(full_mark) && super(full_mark: full_mark, **others) } })
      before_refork { note.call("refork") }
    RUBY
    none, some = %w[/keep /mark].map do |path|
      server = serving(config: config)
      mold = warmed(server, path)
      refork(server)
      server.await_log("refork: generation 2 ")
      server.lines_of("marks").grep(/\A#{mold} /).map { |line| line.split.last }.drop_while { |word| word != "refork" }
    end
    expect([none, some]).to eq([["refork", *["false"] * 4], ["refork", *["false"] * 4, *("true" if RUBY_VERSION < "3.4")]])
  end

  it "does nothing where a full GC of each worker would copy YJIT's code" do
    yjit = "after_fork { RubyVM.const_set(:YJIT, Class.new { def self.enabled? = true }) unless defined?(RubyVM::YJIT.enabled?) && RubyVM::YJIT.enabled? }"
    server = serving(config: yjit)
    warmed(server)
    saves = RUBY_VERSION < "3.4"
    expect(refork(server)).to match(saves ? [/URG sent/, 0] : [/with YJIT on Ruby 3.4 and later it saves nothing/, 1])
    expect(roles(server).key?("mold")).to eq(saves)
  end

  it "runs each at_exit hook once in each process, however often workers were forked anew" do
    hook = ->(name) { %(at_exit { File.write("exits", "\#{Process.pid} #{name}\\n", mode: "a") }\n) }
    config = "#{ReforkHelpers::CONFIG}after_fork { #{hook.call("after_fork")} }\nafter_worker_ready { Kernel.#{hook.call("ready")} }"
    server = Server.ready(ru: "#{hook.call("loaded")}#{ReforkHelpers::APP}", config: config, fastrack: true,
                          options: { MaxWorkers: 3, MaxRequestPerChild: 0, ControlPath: "control" })
    2.times do
      grow(server)
      warmed(server)
      before = server.workers
      expect(refork(server).last).to eq(0)
      settled(server, before)
    end
    last = server.workers
    server.stop
    exits = server.lines_of("exits").tally
    expect(exits.values.uniq).to eq([1])
    expect(exits.keys).to include(*last.product(%w[loaded after_fork ready]).map { |words| words.join(" ") })
  end

  it "has a worker's successor come from the mold" do
    server, mold = reforked(MaxRequestPerChild: 40)
    2.times do
      before = roles(server)["worker"]
      server.signal(:KILL, to: before.first)
      eventually { (roles(server)["worker"] || []).size == 3 && !server.workers.include?(before.first) }
    end
    expect(HttpPeer.exchange(server, "GET /abort HTTP/1.1\r\nHost: h\r\n\r\n").first).to eq("")
    120.times { server.get }
    eventually { roles(server)["worker"]&.size == 3 }
    expect(remembered(server).uniq).to eq([mold.to_s])
  end

  it "may be done again, from a worker of the mold's, and leaves each process the descriptors that it needs" do
    server = serving(MaxThreads: 3)
    kinds = ->(pid) { ProcessTable.descriptors(pid).values.compact.map { |name| name[/\A[^\d\[]+/] }.tally }
    first, second = [2, 3].map do |generation|
      grow(server)
      mold = warmed(server)
      server.get
      @usual ||= kinds.call(server.workers.find { |pid| pid != mold })
      before = server.workers
      refork(server)
      server.await_log("refork: generation #{generation} ")
      settled(server, before)["worker"].last.then { |worker| eventually { kinds.call(worker) == @usual } }
      mold
    end
    listening = ProcessTable.descriptors(server.master).values.grep(/socket/)
    expect([ProcessTable.descriptors(second).values & listening, ProcessTable.alive?(first), remembered(server).uniq]).to eq([[], false, [first.to_s]])
  end

  it "ends generation 0 once all workers are the mold's, and says what memory there is without it" do
    server, mold = reforked
    first = server.await_log(/^fastrack: refork: generation 0 \(pid \d+\) has ended: 3 workers \d+ MB -> \d+ MB$/).log[/generation 0 \(pid (\d+)\) has ended/, 1]
    status = MonitorClient.new(server.file("control")).await("generation 0") { |found| found["generation_0"].nil? }
    expect([ProcessTable.alive?(first.to_i), status["mold"]["pid"]]).to eq([false, mold])
  end

  it "keeps generation 0 while workers fail more often than another one may take to load, and shows both" do
    server = serving(WorkerBootTimeout: 600, ErrRespawnInterval: 0.1)
    mold = warmed(server)
    victim = server.workers.find { |pid| pid != mold }
    server.signal(:KILL, to: victim)
    before = server.await_workers(3) { |found| !found.include?(victim) }
    first = server.molds.first
    refork(server)
    settled(server, before)
    server.await_log(/^fastrack: refork: generation 0 \(pid #{first}\) stays, with [\d.]+ MB of its own, while workers fail more often than once in 600 s \(WorkerBootTimeout\)$/)
    status = MonitorClient.new(server.file("control")).await("molds") { |found| found["mold"] && found["generation_0"] }
    expect([status["mold"], status["generation_0"]]).to match([include("pid" => mold), include("pid" => first, "generation" => 0, "private" => be > 100_000)])
    output, = Open3.capture2e(RbConfig.ruby, Server::COMMAND, "status", "--control", "control", chdir: server.dir)
    expect(output).to match(/^mold +#{mold} generation 1 after #{requests_of(server, mold)} requests.*\nmold +#{first} generation 0 after 0 requests +\d+ MB +\d+ MB$/)
  end

  it "recycles no worker while nobody can fork its successor" do
    server = serving(fastrack: true, app: "sleep 0.01 while File.exist?('hold')\n#{ReforkHelpers::APP}", MaxRequestPerChild: 60, ErrRespawnInterval: 0.1)
    mold = warmed(server)
    refork(server)
    server.await_log("has ended: ")
    # No worker is at its end.
    status = MonitorClient.new(server.file("control")).await("idle") { |found| found["workers"].map { |one| one["state"] } == %w[idle] * 3 }
    workers = status["workers"].map { |one| one["pid"] }
    server.write("hold", "")
    server.signal(:KILL, to: mold)
    server.await_log("workers are forked from generation 0")
    400.times { server.get }
    expect(roles(server)["worker"]).to match_array(workers)
    server.remove("hold")
    eventually(40) { roles(server)["worker"]&.size == 3 && (workers - roles(server)["worker"].to_a).any? }
  end

  killed = /given up: the mold \(pid \d+\) was killed by SIGKILL; workers are forked from generation 0$/
  said = { KILL: killed, EXIT: killed, STOP: /the mold \(pid \d+\) forks no worker: it has not answered within 5 s$/ }
  { KILL: "when the mold is killed", EXIT: "when the mold has just been killed", STOP: "when the mold does not answer", HUP: "on HUP", USR2: "with a new master" }.each do |signal, what|
    it "has workers come from generation 0 again #{what}" do
      server, mold = reforked(ErrRespawnInterval: 0.1)
      before = roles(server)["worker"]
      signal == :EXIT ? File.write("#{server.dir}/kill", mold) : server.signal(signal, to: said.key?(signal) ? mold : server.master)
      before.each { |pid| server.signal(:KILL, to: pid) } if said.key?(signal)
      eventually(40) { !ProcessTable.alive?(mold) }
      server.await_log(said.fetch(signal, ""))
      settled(server, before, molds: 0)
      expect(remembered(server).uniq).to eq([nil])
    end
  end

  it "has workers come from generation 0 again when they share nothing with the mold any more" do
    # /keep makes 40 MB, and /change writes to all of it.
    app = <<~'RUBY'
      $kept = nil
      run lambda { |env|
        $kept ||= Array.new(40) { "x" * (1 << 20) } if env["PATH_INFO"] == "/keep"
        $kept&.each { |text| 0.step(text.bytesize - 1, 4096) { |at| text.setbyte(at, 121) } } if env["PATH_INFO"] == "/change"
        sleep 0.05
        [200, {}, ["#{Process.pid} #{$kept ? $kept.first[0] : "-"}"]]
      }
    RUBY
    server = Server.ready(ru: app, fastrack: true, options: { MaxWorkers: 3, MaxRequestPerChild: 0 })
    answers = ->(path) { Array.new(9) { Thread.new { server.get(path).body.split } }.map(&:value).to_h }
    eventually(60) { answers.call("/keep").size == 3 }
    server.signal(:URG)
    server.await_log("refork: generation 2 from worker")
    loop = ClientLoop.run(server, kept: true) do
      eventually(60) { answers.call("/change").size && answers.call("/").values.uniq == ["y"] }
      server.await_log(/refork: generation 3 from generation 0: 3 workers \d+ MB -> \d+ MB$/)
    end
    expect([loop.failures, answers.call("/").values.uniq]).to eq([[], ["-"]])
    # A process that has just ended has no title.
    eventually { (roles(server).keys - %w[generation worker]).empty? }
    expect(server.log).to match(/given up: the mold \(pid \d+\) has 4\d MB of its own, and had 4\d MB as a worker, .*; workers are forked from generation 0$/)
  end

  { TERM: {}, USR1: { SpawnInterval: 0.1 }, KILL: {} }.each do |signal, options|
    it "leaves no mold behind when the server gets #{signal}" do
      server, = reforked(**options)
      server.stop(signal)
      eventually { server.processes.empty? }
      expect([signal == :KILL || server.status.exitstatus, server.log]).to match([signal == :KILL || 0, /\A(?!.*(?:error|failed|killing|given up))/im])
    end
  end

  hijacked = "all workers that have served have hijacked connections"
  { "each worker loads the app (PreloadApp)" => { fastrack: true, PreloadApp: false }, "it takes two workers at least" => { MaxWorkers: 1 },
    "no worker has served a request yet" => {}, "the app forbids it (worker" => "/forbid", hijacked => "/hijack",
    "the app forbids it (/" => { config: "Fastrack.forbid_refork!" } }.each do |reason, given|
    it "says why nothing happens: #{reason}" do
      server = serving(**(given.is_a?(Hash) ? given : {}))
      server.get(given) if given.is_a?(String)
      before = server.workers
      expect(refork(server)).to match([/URG has failed: the old code serves on \(pid \d+\): #{Regexp.escape(reason)}/, 1])
      expect(server.workers).to eq(before)
    end
  end

  it "has a worker become the mold whose last request is also the last one of its limit, and knows all that the mold forks" do
    server = peer = pids = nil
    # A kept connection goes to another worker when its own has no processor.
    until pids&.one?
      server = serving(MinRequestPerChild: 21, MaxRequestPerChild: 21)
      peer = KeptPeer.new(server)
      pids = Array.new(20) { peer.get("/keep").body.to_i }.uniq
    end
    mold, = pids
    before = server.workers
    last = Thread.new { peer.get("/until-stopped").status }
    expect([refork(server), last.value]).to match([[/\AURG sent to/, 0], 200])
    settled(server, before)
    2.times do
      lost = roles(server)["worker"].first
      server.signal(:KILL, to: lost)
      eventually { (workers = roles(server)["worker"]) && workers.size == 3 && !workers.include?(lost) }
      eventually do
        status, = Open3.capture2(RbConfig.ruby, Server::COMMAND, "status", "--json", "--control", "control", chdir: server.dir)
        JSON.parse(status)["workers"].map { |worker| worker["pid"] }.sort == roles(server)["worker"]&.sort
      end
    end
    expect([roles(server)["mold"], server.log]).to match([[mold], /\A(?!.*(?:forks no worker|given up|Error))/m])
    peer.close
  end

  it "hears of an app that forbids it in the before_fork of the mold's first worker" do
    config = <<~'RUBY'
      mold, calls = nil, 0
      before_refork { mold = Process.pid }
      # The mold also calls it once for itself.
      before_fork { |*| Fastrack.forbid_refork! if mold == Process.pid && (calls += 1) == 2 }
    RUBY
    server = serving(config: config, ErrRespawnInterval: 0.1)
    mold = warmed(server)
    refork(server)
    settled(server, [mold], molds: 0)
    expect(server.log).to match(/\A(?!.*forks no worker).*the app forbids it \(the mold \(pid #{mold}\)\)/m)
    expect(refork(server)).to match([/the app forbids it/, 1])
  end

  { TERM: "exited", KILL: "was killed by SIGKILL" }.each do |signal, how|
    it "says that the worker that was to be the mold has ended by #{signal}, and the next command succeeds" do
      server = serving(config: "after_fork { |*| sleep 0.01 while File.exist?('hold') }", ErrRespawnInterval: 0.1)
      mold = warmed(server)
      File.write("#{server.dir}/hold", "")
      asked = Thread.new { refork(server) }
      # Its successor boots.
      eventually(20) { roles(server)["worker"]&.size == 4 }
      server.signal(signal, to: mold)
      eventually { !ProcessTable.alive?(mold) }
      File.delete("#{server.dir}/hold")
      text = /worker \d \(pid #{mold}\) #{how}; workers are forked as before$/
      expect([asked.value, server.log]).to match([[/URG has failed: .*#{text}/, 1], /refork: given up: #{text}/])
      eventually { roles(server)["worker"]&.size == 3 }
      warmed(server)
      expect(refork(server)).to match([/\AURG sent to \d+$/, 0])
    end
  end

  it "has workers listen at addresses of their own, as those of the master" do
    FreePort.keep(3) do |port|
      server = serving(config: "after_fork { |server, worker| server.listen(%(127.0.0.1:\#{#{port} + worker.nr})) }")
      mold = warmed(server)
      before = server.workers
      expect(refork(server)).to match([/\AURG sent to \d+$/, 0])
      found = settled(server, before)
      ask = ->(nr) { TCPSocket.open("127.0.0.1", port + nr) { |socket| socket.write("GET / HTTP/1.0\r\n\r\n") && socket.read[/^\d+/].to_i } }
      expect([Array.new(3, &ask), found["mold"]]).to match([match_array(found["worker"]), [mold]])
    end
  end

  it "makes no mold of a worker whose app has taken over a connection at last" do
    server = serving
    peer = KeptPeer.new(server)
    mold = kept_by_one(peer)
    asked = Thread.new { peer.get("/until-stopped?hijack") }
    output, status = refork(server)
    expect([output, status]).to match([/worker \d \(pid #{mold}\) has hijacked connections or streams, which a fork would have, too/, 1])
    # A process that has just ended has no title.
    eventually { (roles(server).keys - %w[generation worker]).empty? }
    asked.kill
  end

  it "has workers come from generation 0 again when two of the mold's do not boot" do
    config = <<~'RUBY'
      molded = false
      before_refork { molded = true }
      after_fork { |*| raise "no memory of this" if molded && File.exist?("broken") }
    RUBY
    server, mold = reforked(config: config, ErrRespawnInterval: 0.1)
    before = roles(server)["worker"]
    File.write("#{server.dir}/broken", "")
    before.each { |pid| server.signal(:KILL, to: pid) }
    settled(server, before, molds: 0)
    expect(server.log).to match(/refork: given up: the last 2 workers of the mold \(pid #{mold}\) failed to boot; workers are forked from generation 0$/)
    expect(remembered(server).uniq).to eq([nil])
  end

  it "has workers come from generation 0 again when two of the mold's do not boot, also after a HUP that has failed" do
    config = <<~'RUBY'
      molded = false
      before_refork { molded = true }
      after_fork { |*| raise "no memory of this" if molded && File.exist?("broken") }
    RUBY
    server, mold = reforked(config: config, fastrack: true, ErrRespawnInterval: 0.1)
    before = roles(server)["worker"]
    server.reload("after_fork { |*| raise 'no' }")
    server.await_log("the old code serves on")
    server.write("fastrack.rb", config)
    server.write("broken", "")
    before.each { |pid| server.signal(:KILL, to: pid) if ProcessTable.alive?(pid) }
    server.await_log(/refork: given up: the last 2 workers of the mold \(pid #{mold}\) failed to boot; workers are forked from generation 0$/)
    settled(server, before, molds: 0)
  end

  it "is named as the mold where it does not end in time" do
    server, mold = reforked(config: "before_worker_shutdown { sleep if File.exist?('hang') }", GracefulTimeout: 4)
    File.write("#{server.dir}/hang", "")
    server.stop
    # The mold ends itself in the moment in which the master kills it.
    expect(server.log).to match(/^fastrack: the mold \(pid #{mold}\) has not finished (?:before_worker_shutdown and at_exit hooks )?within 4 s: (?:killing|ending) it/)
    expect(server.log).not_to match(/worker \d \(pid #{mold}\) has not finished/)
  end

  it "says which native threads there are" do
    server = serving
    server.get("/thread")
    # The worker has ended then, as when it is recycled.
    expect(refork(server)).to match([/URG has failed: the old code serves on \(pid \d+\): worker \d \(pid \d+\) has native threads that a fork would lose \(\d+ \S+/, 1])
  end
end
