# frozen_string_literal: true

RSpec.describe "Master" do
  describe "workers", once: "processes and signals" do
    it "A9 SpawnInterval spaces spawns, those at boot and those of successors" do
      began = now
      server = Server.start(ru: Rackups::PID, fastrack: true, options: { MaxWorkers: 3, SpawnInterval: 0.4 }, config: <<~'RUBY')
        before_fork { File.write("spawns", ".", mode: "a") }
        after_fork { File.write("up", ".", mode: "a") }
      RUBY
      eventually { server.lines_of("up") == ["..."] }
      server.await_workers(3).each { |pid| server.signal(:TERM, to: pid) }
      eventually { server.lines_of("spawns") == ["......"] }
      expect(now - began).to be >= 5 * 0.4
    end

    it "B-no-inheritance a process that the app forks is not stopped from ending by the worker's signal handlers", once: nil do
      server = Server.start(ru: <<~'RUBY', options: { MaxWorkers: 1 })
        run ->(_env) { [200, {}, [fork { sleep }.to_s]] }
      RUBY
      children = []
      %i[TERM HUP INT USR1].each do |name|
        children << server.get.body.to_i
        server.signal(name, to: children.last)
        eventually { !ProcessTable.alive?(children.last) }
      end
      expect(server.get.tap { |response| children << response.body.to_i }.status).to eq(200)
    ensure
      children.each { |pid| Process.kill(:KILL, pid) if ProcessTable.alive?(pid) }
    end
  end

  it "A3 workers draw their limits apart, though a hook has them all begin with the same random numbers" do
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 2, MinRequestPerChild: 1_000, MaxRequestPerChild: 1_000_000_000 },
                          config: <<~'RUBY')
                            after_fork { srand(1) }
                            after_worker_ready { |_, worker| File.write("limits", "#{worker.instance_variable_get(:@request_limit)}\n", mode: "a") }
                          RUBY
    eventually { server.lines_of("limits").size == 2 }
    expect(server.lines_of("limits").map(&:to_i).uniq).to match([be_between(1_000, 1_000_000_000)] * 2)
  end

  it "A10 USR1 with SpawnInterval collects one worker per interval, then the master ends", once: "processes and signals" do
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 3, SpawnInterval: 0.5 }, config: <<~'RUBY')
      # The master notes when it tells a worker to go.
      Fastrack::WorkerHandle.prepend(Module.new { def stop = File.write("ends", ".", mode: "a") && super })
    RUBY
    server.await_ready
    began = now
    server.signal(:USR1, to: server.master)
    expect([server.wait.exitstatus, now - began, server.lines_of("ends")]).to match([0, be >= 2 * 0.5, ["..."]])
  end

  # On Ruby 3.3 a collection after the warm-up gives workers room: else theirs would have to make it, by full marks.
  it "has Ruby make old and compact what the app has loaded, and make room, before the first fork", :quiet do
    server = Server.start(ru: Rackups::PID, fastrack: true, options: { MaxWorkers: 1 }, config: <<~RUBY)
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
    it "B-idle neither master nor workers use CPU", alone: "CPU time of processes that do nothing" do
      server = Server.ready(ru: Rackups::PID, options: { MaxWorkers: 3 })
      pids = [server.master, *server.await_workers(3)]
      pids.size.times { server.get }
      # What they are still about to do after their start, and what the system wants of them, may take a clock tick (10 ms);
      # those that spin use a hundred, or their share of a busy machine, each second.
      eventually { ProcessTable.cpu_seconds_within(1, pids) <= 0.011 }
    end

    it "B-idle background threads of the app run while a worker waits" do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 1 }, config: <<~RUBY)
        after_fork { Thread.new { loop { File.write("beats", ".", mode: "a"); sleep 0.01 } } }
      RUBY
      server.get
      before = eventually { File.size?(server.file("beats")) }
      eventually(20, "no beats while idle") { File.size(server.file("beats")) >= before + 20 }
    end
  end
end
