# frozen_string_literal: true

require "open3"

RSpec.describe "`fastrack refork`", linux: "a subreaper (prctl(2))" do
  # /keep has the worker remember something; others answer with the worker's pid, its parent's, and what it remembers.
  let(:app) { <<~'RUBY' }
    $kept = []
    run lambda { |env|
      case env["PATH_INFO"]
      when "/keep" then $kept << Process.pid
      when "/hijack" then env["rack.hijack"].call.tap { |socket| socket.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") }.close
      when "/abort" then Process.kill(:ABRT, Process.pid) && sleep
      when "/thread"
        require "fiddle"
        # A thread of which Ruby knows nothing: it sleeps.
        pthread = Fiddle::Handle::DEFAULT
        create = Fiddle::Function.new(pthread["pthread_create"], [Fiddle::TYPE_VOIDP] * 4, Fiddle::TYPE_INT)
        create.call(Fiddle::Pointer.malloc(16, Fiddle::RUBY_FREE), nil, pthread["sleep"], 1_000)
      end
      [200, {}, ["#{Process.pid} #{Process.ppid} #{$kept.first}"]]
    }
  RUBY

  # Notes which process runs which hook for which worker.
  let(:config) { <<~'RUBY' }
    $note = ->(what) { File.write("notes", "#{what}\n", mode: "a") }
    before_fork { |_, worker| $note.call("before #{Process.pid} #{worker.nr}") }
    after_fork { |_, worker| $note.call("after #{Process.pid} #{worker.nr}") }
    before_worker_shutdown { $note.call("shutdown #{Process.pid}") }
  RUBY

  def serving(fastrack: false, **options)
    Server.ready(ru: app, config: config, fastrack: fastrack, options: { MaxWorkers: 3, MaxRequestPerChild: 0, ControlPath: "control", **options })
  end

  # Asks until one worker has served more than any other.
  #
  # @return [Integer] its pid
  def warmed(server)
    pids = server.connect do |connection|
      Array.new(20) do
        connection.write("GET /keep HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.readpartial(4096)[/^(\d+) /, 1].to_i
      end
    end
    expect(pids.uniq.size).to eq(1)
    pids.first
  end

  def refork(server, *more)
    output, status = Open3.capture2e(Server::CLEAN_ENVIRONMENT, RbConfig.ruby, "-w", Server::COMMAND, "refork", "--control", "control", *more,
                                     chdir: server.dir, stdin_data: "")
    [output, status.exitstatus]
  end

  # @return [Hash{String => Array<Integer>}] pids of the server's children, by what they are
  def roles(server)
    server.workers.group_by { |pid| ProcessTable.title(pid)[/\Afastrack (\w+)/, 1] }
  rescue Errno::ENOENT, Errno::ESRCH
    # It has just ended.
    {}
  end

  # Waits until all workers are others than these, beside so many molds.
  def settled(server, before, molds: 1)
    eventually(40) do
      found = roles(server)
      found.keys.compact.size == found.size && found.fetch("mold", []).size == molds && found.fetch("worker", []).size == 3 &&
        (found["worker"] & before).empty? && found
    end
  end

  # @return [Array<String>] what so many answers say that a worker remembers
  def remembered(server) = Array.new(30) { server.get.body.split }.to_h { |pid, _, kept| [pid, kept] }.values

  def reforked(**options)
    server = serving(**options)
    mold = warmed(server)
    before = server.workers
    output, status = refork(server)
    expect([output.lines.first, status]).to eq(["URG sent\n", 0]), output
    server.await_log("refork: generation 2 ")
    settled(server, before)
    [server, mold]
  end

  it "has all workers know what one has learned, and no request is lost for it" do
    # Workers are recycled meanwhile.
    server = serving(MaxRequestPerChild: 1000)
    before = server.workers
    loop = ClientLoop.run(server, paths: ["/keep"] * 3, kept: true) do
      output, status = refork(server)
      expect(status).to eq(0), output
      server.await_log("refork: generation 2 ")
      settled(server, before)
    end
    mold, = roles(server)["mold"]
    expect(loop.failures).to eq([])
    expect(remembered(server).uniq).to eq([mold.to_s])
    expect(server.get.body.split[1].to_i).to eq(server.master)
    server.await_log(/^fastrack: refork: generation 2 from worker \d \(pid #{mold}, \d+ requests\): 3 workers \d+ MB -> \d+ MB$/)
  end

  it "has workers of several threads do so, too" do
    server, mold = reforked(MaxThreads: 3)
    loop = ClientLoop.run(server, paths: ["/"] * 6, &:await_answers)
    expect(loop.failures).to eq([])
    expect(loop.bodies.map { |body| body.split.last }.uniq).to eq([mold.to_s])
  end

  it "runs the hooks of the mold's workers as those of the master's" do
    server, mold = reforked
    workers = roles(server)["worker"]
    notes = server.lines_of("notes")
    expect(notes.grep(/\Abefore #{mold} /).size).to eq(4)
    expect(notes.grep(/\Aafter/).map { |line| line.split[1].to_i }.last(3)).to match_array(workers)
    expect(notes.grep(/shutdown #{mold}/)).to eq([])
    server.stop
    expect(server.lines_of("notes").grep(/shutdown/).map { |line| line.split.last.to_i }).to include(mold, *workers)
  end

  it "leaves workers the descriptors that they have anyway, and the mold none of the server's" do
    server = serving
    kinds = ->(pid) { ProcessTable.descriptors(pid).values.compact.map { |name| name[/\A[^\d\[]+/] }.tally }
    mold = warmed(server)
    server.get
    before = server.workers
    usual = kinds.call(before.find { |pid| pid != mold })
    expect(refork(server).last).to eq(0)
    server.await_log("refork: generation 2 ")
    worker = settled(server, before)["worker"].last
    eventually { kinds.call(worker) == usual }
    listening = ProcessTable.descriptors(server.master).values.grep(/socket/)
    expect(ProcessTable.descriptors(mold).values & listening).to eq([])
  end

  it "has a worker's successor come from the mold" do
    server, mold = reforked(MaxRequestPerChild: 40)
    2.times do
      before = roles(server)["worker"]
      server.signal(:KILL, to: before.first)
      eventually { (roles(server)["worker"] || []).size == 3 && !server.workers.include?(before.first) }
    end
    expect(server.get("/abort").status).to eq(502)
    120.times { server.get }
    eventually { roles(server)["worker"]&.size == 3 }
    expect(remembered(server).uniq).to eq([mold.to_s])
  end

  it "has workers come from the master again when the mold is killed" do
    server, mold = reforked
    server.signal(:KILL, to: mold)
    server.await_log(/^fastrack: refork: given up: the mold \(pid #{mold}\) was killed by SIGKILL/)
    before = roles(server)["worker"]
    before.each { |pid| server.signal(:KILL, to: pid) }
    settled(server, before, molds: 0)
    expect(remembered(server).uniq).to eq([nil])
  end

  it "has workers come from the master again when the mold does not answer" do
    server, mold = reforked
    server.signal(:STOP, to: mold)
    before = roles(server)["worker"]
    server.signal(:KILL, to: before.first)
    server.await_log(/^fastrack: refork: the mold \(pid #{mold}\) forks no worker: it has not answered within 5 s$/)
    eventually { roles(server)["worker"]&.size == 3 && !server.workers.intersect?([mold, before.first]) }
  end

  it "begins with the master's memory again on HUP" do
    server, mold = reforked
    before = roles(server)["worker"]
    server.reload
    settled(server, before, molds: 0)
    expect(remembered(server).uniq).to eq([nil])
    expect(ProcessTable.alive?(mold)).to be(false)
  end

  it "may be done again, from a worker of the mold's" do
    server, mold = reforked
    before = roles(server)["worker"]
    warmed(server)
    expect(refork(server).last).to eq(0)
    server.await_log("refork: generation 3 ")
    settled(server, before)
    expect(ProcessTable.alive?(mold)).to be(false)
    expect(remembered(server).uniq).to eq([mold.to_s])
  end

  it "leaves no process behind when the server stops meanwhile" do
    server = serving
    warmed(server)
    server.signal(:URG)
    expect(server.stop.exitstatus).to eq(0)
    expect(server.processes).to eq([])
  end

  { "with the server" => [{}, :TERM], "when workers stop one by one" => [{ SpawnInterval: 0.1 }, :USR1] }.each do |how, (options, signal)|
    it "stops the mold #{how}" do
      server, = reforked(**options)
      expect(server.stop(signal).exitstatus).to eq(0)
      expect(server.processes).to eq([])
      expect(server.log).not_to match(/error|failed|killing/i)
    end
  end

  it "begins with a new master's memory on USR2" do
    server, mold = reforked
    server.signal(:USR2)
    eventually(40) { server.ended? && server.listening[:pid].to_i != server.pid && !ProcessTable.alive?(mold) }
    settled(server, [], molds: 0)
    expect(remembered(server).uniq).to eq([nil])
  end

  it "has the mold end with a master that is killed" do
    server, mold = reforked
    server.signal(:KILL)
    eventually { !ProcessTable.alive?(mold) }
  end

  describe "where it cannot be done" do
    def refused(reason, **options)
      server = serving(**options)
      yield server if block_given?
      before = server.workers
      output, status = refork(server)
      expect(output).to match(/refork: nothing happens: #{reason}/)
      expect(status).to eq(1)
      before & server.workers
    end

    { "each worker loads the app" => ["each worker loads the app \\(PreloadApp\\)", nil, { fastrack: true, PreloadApp: false }],
      "there is one worker" => ["it takes two workers at least", nil, { MaxWorkers: 1 }],
      "nobody has served yet" => ["no worker has served a request yet"],
      "connections are hijacked" => ["all workers that have served have hijacked connections", "/hijack"],
      # The worker has ended then, as when it is recycled.
      "there are native threads" => ['worker \d \(pid \d+\) has native threads that a fork would leave out \(\d+ \S+', "/thread"] }.each do |what, (reason, path, options)|
      it "says that #{what}" do
        stay = refused(reason, **options.to_h) { |server| server.get(path) if path }
        expect(stay.size).to be >= { "there is one worker" => 1, "there are native threads" => 2 }.fetch(what, 3)
      end
    end
  end
end
