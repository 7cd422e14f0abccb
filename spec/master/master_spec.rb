# frozen_string_literal: true

require_relative "../spec_helper"

RSpec.describe "Master" do
  it "C6 master and workers have titles" do
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 2 })
    titles = eventually { server.await_workers(2).map { |pid| ProcessTable.title(pid) }.sort.then { |all| all if all.last.include?("worker") && all.first.include?("worker") } }
    expect(titles).to eq(["fastrack worker[0]", "fastrack worker[1]"])
    expect(ProcessTable.title(server.master)).to eq("fastrack master")
  end

  describe "workers" do
    it "A9 there are exactly MaxWorkers" do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 3 })
      pids = server.await_workers(3)
      20.times { expect(pids).to include(server.get.body.to_i) }
      expect(server.workers).to eq(pids)
    end

    { "TERM" => :TERM, "QUIT" => :QUIT, "kill -9" => :KILL }.each do |what, signal|
      it "A9 one that ends by #{what} is replaced, and leaves no zombie" do
        server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 2, ErrRespawnInterval: 0.1 })
        before = server.await_workers(2)
        server.signal(signal, to: before.first)
        server.await_workers(2) { |found| (found - before).size == 1 }
        # Its successor may be there before the master has reaped it.
        eventually { ProcessTable.zombies(server.master).empty? }
        expect(server.workers).to include(before.last)
        expect(server.get.status).to eq(200)
      end
    end

    it "A10 one that gets TERM finishes its request first" do
      server = Server.start(ru: Rackups::GATE, options: { MaxWorkers: 1 })
      request = SlowRequest.new(server)
      worker = request.pid
      server.signal(:TERM, to: worker)
      expect(request.finish.body.to_i).to eq(worker)
      server.await_workers(1) { |found| found != [worker] }
    end

    it "A9 SpawnInterval spaces spawns, those at boot and those of successors" do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 3, SpawnInterval: 0.3 }, config: <<~'RUBY')
        before_fork { File.write("spawns", "#{Process.clock_gettime(Process::CLOCK_MONOTONIC)}\n", mode: "a") }
        after_fork { File.write("up", ".", mode: "a") }
      RUBY
      eventually { server.lines_of("up") == ["..."] }
      server.await_workers(3).each { |pid| server.signal(:TERM, to: pid) }
      eventually { server.lines_of("spawns").size == 6 }
      times = server.lines_of("spawns").map(&:to_f)
      # The hook notes its time some moments after the master has noted its own: more for one worker than for the next.
      expect(times.each_cons(2).map { |one, two| two - one }).to all(be >= 0.25)
    end

    it "B-no-inheritance a process that the app forks is not stopped from ending by the worker's signal handlers" do
      server = Server.start(ru: <<~'RUBY', options: { MaxWorkers: 1 })
        run ->(_env) { [200, {}, [fork { sleep }.to_s]] }
      RUBY
      %i[TERM HUP INT USR1].each do |name|
        child = server.get.body.to_i
        server.signal(name, to: child)
        eventually { !ProcessTable.alive?(child) }
      end
      expect(server.get.status).to eq(200)
    ensure
      ProcessTable.group(server.pid).each { |pid| Process.kill(:KILL, pid) unless [server.master, *server.workers].include?(pid) }
    end
  end

  it "A3 workers draw their limits apart, though a hook has them all begin with the same random numbers" do
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 3, MinRequestPerChild: 1_000, MaxRequestPerChild: 1_000_000_000 },
                          config: <<~'RUBY')
                            after_fork { srand(1) }
                            after_worker_ready { |_, worker| File.write("limits", "#{worker.instance_variable_get(:@request_limit)}\n", mode: "a") }
                          RUBY
    eventually { server.lines_of("limits").size == 3 }
    expect(server.lines_of("limits").map(&:to_i).uniq).to match([be_between(1_000, 1_000_000_000)] * 3)
  end

  describe "HUP" do
    it "A10 replaces all workers, one generation on, while the master stays and every request is answered" do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 3 })
      before = server.await_workers(3)
      server.signal(:HUP, to: server.master)
      answers = []
      eventually do
        answers << server.get.status
        (server.workers & before).empty? && server.workers.size == 3
      end
      expect(answers).to all(eq(200))
      expect(server.ended?).to be(false)
    end

    it "A10 has a worker that is at a request finish it, and replaces it meanwhile" do
      server = Server.start(ru: Rackups::GATE, options: { MaxWorkers: 1 })
      request = SlowRequest.new(server)
      server.signal(:HUP, to: server.master)
      eventually { server.workers.size == 2 }
      expect(server.get.body.to_i).not_to eq(request.pid)
      expect(request.finish.body.to_i).to eq(request.pid)
      expect(server.await_workers(1)).not_to include(request.pid)
    end

    it "A10 keeps all old workers where the new ones cannot start" do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 3, ErrRespawnInterval: 0.1 }, config: <<~RUBY)
        after_fork { raise "broken" if File.exist?("broken") }
      RUBY
      eventually { server.log.include?("is ready") }
      before = server.await_workers(3)
      server.write("broken", "")
      server.signal(:HUP, to: server.master)
      eventually { server.log.scan("broken (RuntimeError)").size >= 3 }
      expect(server.workers & before).to match_array(before)
      File.unlink(File.join(server.dir, "broken"))
      server.await_workers(3) { |found| (found & before).empty? }
    end
  end

  describe "USR1" do
    it "A10 with SpawnInterval collects one worker per interval, then the master ends" do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 3, SpawnInterval: 0.5 }, config: <<~'RUBY')
        # The master notes when it tells each worker to go.
        Fastrack::WorkerHandle.prepend(Module.new do
          def stop
            File.write("ends", "#{Process.clock_gettime(Process::CLOCK_MONOTONIC)}\n", mode: "a")
            super
          end
        end)
      RUBY
      server.await_workers(3).each { |pid| eventually { ProcessTable.title(pid).start_with?("fastrack worker") } }
      server.signal(:USR1, to: server.master)
      expect(server.wait.exitstatus).to eq(0)
      times = server.lines_of("ends").map(&:to_f)
      expect(times.size).to eq(3)
      expect(times.each_cons(2).map { |one, two| two - one }).to all(be >= 0.499)
    end

    it "A10 without SpawnInterval does no harm" do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 1 })
      before = server.await_workers(1)
      server.signal(:USR1, to: server.master)
      server.signal(:USR1, to: before.first)
      expect(server.get.body.to_i).to eq(before.first)
    end
  end

  # On Ruby 3.3 a collection after the warm-up gives workers room: else theirs would have to make it, by full marks.
  it "has Ruby make old and compact what the app has loaded, and make room, before the first fork", :quiet do
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 1 }, config: <<~RUBY)
      note = ->(line) { File.write("notes", line + "\\n", mode: "a") }
      watch = ->(object, name) { object.singleton_class.prepend(Module.new { define_method(name) { |*all, **rest| note.call(name.to_s) || super(*all, **rest) } }) }
      watch.call(Process, :warmup) if Process.respond_to?(:warmup)
      watch.call(GC, :start)
      before_fork { note.call("fork") }
    RUBY
    server.get
    warm_up = Process.respond_to?(:warmup) ? ["warmup", *("start" if RUBY_VERSION.start_with?("3.3."))] : ["start"] * 4
    expect(server.lines_of("notes")).to eq([*warm_up, "fork"])
  end

  describe "without requests" do
    it "B-idle neither master nor workers use CPU" do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 3 })
      pids = [server.master, *server.await_workers(3)]
      pids.size.times { server.get }
      # What they are still about to do after their start is over when nothing is used for a while.
      eventually { ProcessTable.cpu_seconds_within(0.1, pids).zero? }
      # A clock tick (10 ms) at most, for what the system may want of them; one that spins uses a hundred.
      expect(ProcessTable.cpu_seconds_within(1, pids)).to be <= 0.011
    end

    it "B-idle background threads of the app run while a worker waits" do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 1 }, config: <<~RUBY)
        after_fork { Thread.new { loop { File.write("beats", ".", mode: "a"); sleep 0.01 } } }
      RUBY
      server.get
      beats = File.join(server.dir, "beats")
      before = eventually { File.size?(beats) }
      eventually(3, "no beats while idle") { File.size(beats) >= before + 20 }
    end
  end
end
