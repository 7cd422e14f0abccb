# frozen_string_literal: true

require "support/refork_helpers"

RSpec.describe "`fastrack refork`", linux: "a subreaper (prctl(2))" do
  include ReforkHelpers

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
    expect(notes.grep(/ #{mold} /).map { |line| line[/\w+/] }.join(" ")).to eq("after refork#{" before" * 4}")
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

  it "stops the mold with the server" do
    server, = reforked
    expect(server.stop.exitstatus).to eq(0)
    expect(server.processes).to eq([])
    expect(server.log).not_to match(/error|failed|killing/i)
  end

  it "stops the mold when workers stop one by one" do
    server, = reforked(SpawnInterval: 0.1)
    expect(server.stop(:USR1).exitstatus).to eq(0)
    expect(server.processes).to eq([])
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

    it "says that each worker loads the app" do
      expect(refused(/each worker loads the app \(PreloadApp\)/, fastrack: true, PreloadApp: false).size).to eq(3)
    end

    it "says that there is one worker" do
      expect(refused(/it takes two workers at least/, MaxWorkers: 1).size).to eq(1)
    end

    it "says that nobody has served yet" do
      expect(refused(/no worker has served a request yet/).size).to eq(3)
    end

    it "says that the app forbids it, in the master or a worker" do
      expect(refused(/the app forbids it \(worker \d \(pid \d+\)\)/) { |server| server.get("/forbid") }.size).to eq(3)
      expect(refused(/the app forbids it \(.*fastrack\.rb:1\)/, config: "Fastrack.forbid_refork!").size).to eq(3)
    end

    it "says that connections are hijacked" do
      expect(refused(/all workers that have served have hijacked connections/) { |server| server.get("/hijack") }.size).to eq(3)
    end

    it "says which native threads there are" do
      # The worker has ended then, as when it is recycled.
      reason = /worker \d \(pid \d+\) has native threads that a fork would leave out \(\d+ \S+/
      expect(refused(reason) { |server| server.get("/thread") }.size).to be >= 2
    end
  end
end
