# frozen_string_literal: true

RSpec.describe "OobGC=auto", :quiet, exec: "what is in the heap decides" do
  # Makes garbage, /more a lot of it, and answers with the collections and the full marks before and after that. /old makes what
  # stays, and so much that a full mark becomes due.
  let(:allocating) { <<~'RUBY' }
    old = Array.new(50_000) { |n| "live #{n}" }
    run lambda { |env|
      counts = -> { [GC.count, GC.stat(:major_gc_count)] }
      before = counts.call
      Array.new(env["PATH_INFO"] == "/more" ? 10_000 : 1_500) { |n| "object #{n}" }
      8_000.times { old << ("x" * 10_000) } if env["PATH_INFO"] == "/old"
      File.write("waiting", "#{Process.pid}\n", mode: "a") if env["PATH_INFO"] == "/wait"
      sleep 0.005 until env["PATH_INFO"] != "/wait" || File.exist?("over")
      [200, { "content-type" => "text/plain" }, [[*before, *counts.call, Process.pid].join(" ")]]
    }
  RUBY

  # A collection of the server's begins, and lasts until there is a file `go`.
  let(:held) { <<~'RUBY' }
    after_fork do
      GC.singleton_class.prepend(Module.new do
        def start(**)
          File.write("collecting", "#{Process.pid}\n", mode: "a")
          sleep 0.01 until File.exist?("go")
          super
        end
      end)
    end
  RUBY

  def start(options = {}, config: nil)
    @server = Server.ready(ru: allocating, config: config, options: { OobGC: "auto" }.merge(options))
  end

  attr_reader :server

  elsewhere = ("Ruby 3.3 only" unless RUBY_VERSION.start_with?("3.3."))

  # Whether Ruby says when a full mark is due.
  says_due = GC.latest_gc_info.key?(:need_major_by)

  # @return [Array(Integer, Integer, Integer, Integer, Integer)] the answer
  def ask(path = "/") = server.get(path).body.split.map(&:to_i)

  # The same; then the worker is idle. On a busy machine it may not be when its client has the answer.
  def ask_and_rest(path = "/")
    ask(path).tap { |*, pid| eventually { File.read("/proc/#{pid}/stat")[/\) (\w)/, 1] == "S" } }
  end

  # Pids of the workers that have begun to collect.
  def collecting = server.lines_of("collecting").map(&:to_i)

  # Asks until a worker collects, and gives its pid.
  def await_collection = eventually { ask && collecting.first }

  # When the heap has its size, and then a full mark becomes due: collections during requests, full marks during requests, and
  # full marks in all.
  def collections(options)
    start({ MaxWorkers: 1 }.merge(options))
    300.times { ask_and_rest }
    before = ask_and_rest("/old")
    answers = Array.new(400) { ask_and_rest }
    [0, 1].map { |count| answers.sum { |answer| answer[count + 2] - answer[count] } } << (answers.last[3] - before[3])
  end

  it "collects between requests, and makes full marks there" do
    young, full, all = collections({})
    young_without, _, full_without = collections(OobGC: false)
    expect(young).to be <= young_without / 4
    # Ruby may make it while it is in the server's own code, which no request sees.
    expect(full_without).to be > 0
    expect([full, all]).to match([0, be > 0]) if says_due
  end

  it "does so with several threads, too" do
    young, full, all = collections(MaxThreads: 3)
    expect(young).to be < 10
    expect([full, all]).to match([0, be > 0]) if says_due
  end

  it "never has two workers collect at once, and the others serve meanwhile" do
    start({ MaxWorkers: 3 }, config: held)
    first = await_collection
    answers = Array.new(120) { ask("/more") }
    expect(answers.map(&:last)).not_to include(first)
    # By themselves the others have collected.
    expect([answers.sum { |answer| answer[2] - answer[0] }, collecting]).to match([be > 0, [first]])
    server.write("go", "")
    eventually { ask("/more") && collecting.size > 1 }
  end

  it "lets the others collect when a worker was killed that did" do
    start({ MaxWorkers: 2 }, config: held)
    first = await_collection
    Process.kill(:KILL, first)
    eventually { ask("/more") && collecting.uniq.size > 1 }
    server.write("go", "")
  end

  it "has another worker serve a kept-alive client of the one that collects" do
    start({ MaxWorkers: 2 }, config: held)
    client = KeptPeer.new(server)
    first = eventually { client.get("/") && collecting.first }
    expect(client.get("/").body.split.last.to_i).not_to eq(first)
    server.write("go", "")
  end

  # Where one worker is in the app for long, somebody waits after each response of the other.
  it "leaves a client that waits to a busy worker when a collection is due, which then serves it first" do
    paced = 'run lambda { |env|
      Array.new(1_500) { |n| "object #{n}" }
      name = env["PATH_INFO"].delete("/")
      File.write("began-#{name}", "")
      sleep 0.002 until File.exist?("end-#{name}")
      [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
    }'
    @server = Server.ready(ru: paced, config: held, options: { OobGC: "auto", MaxWorkers: 2, ControlPath: "control" })
    long, *clients = Array.new(3) { KeptPeer.new(server) }
    began = ->(name) { File.exist?(File.join(server.dir, "began-#{name}")) }
    long.ask("/long")
    eventually { began.("long") }
    clients.first.ask("/0")
    eventually { began.("0") }
    monitor = MonitorClient.new(File.join(server.dir, "control"))
    last = (0...300).find do |number|
      clients.rotate(number)[1].ask("/#{number + 1}")
      monitor.await("nobody waits") { |status| status["connections"]["waiting"] == 1 }
      server.write("end-#{number}", "")
      clients.rotate(number)[0].answer
      eventually { collecting.any? || began.("#{number + 1}") }
      collecting.any?
    end
    expect(last).not_to be_nil
    %W[end-long end-#{last + 1}].each { |name| server.write(name, "") }
    pids = [long, clients.rotate(last)[1]].map { |client| client.answer.body.to_i }
    expect([pids.uniq.size, collecting.size]).to eq([1, 1])
    expect(pids).not_to include(collecting.first)
    server.write("go", "")
  end

  it "does not collect while a request is in the app beside" do
    start({ MaxWorkers: 1, MaxThreads: 3 }, config: held)
    client = KeptPeer.new(server).ask("/wait")
    expect(Array.new(80) { ask("/more") }.sum { |answer| answer[2] - answer[0] }).to be > 0
    expect(collecting).to be_empty
    server.write("over", "")
    expect(client.answer.status).to eq(200)
    await_collection
    server.write("go", "")
  end

  # Only Linux has priorities of threads. Others than root may not return from a low one, unless their limit allows it.
  describe "priority", skip: ("root on Linux only" unless Process.euid.zero? && RUBY_PLATFORM.include?("linux")) do
    def nice(pid) = File.read("/proc/#{pid}/task/#{pid}/stat").rpartition(")").last.split[16].to_i

    # @return [Array<Integer>] the nice values of a worker that collects, and when it serves
    def priorities(workers: 2, **how)
      @server = Server.ready(ru: allocating, config: held, options: { OobGC: "auto", MaxWorkers: workers }, **how)
      # All of them serve.
      clients = Array.new(workers) { Thread.new { ask("/wait") } }
      eventually { server.lines_of("waiting").size == workers }
      server.write("over", "")
      clients.each(&:value)
      asking = Thread.new { await_collection }
      low = nice(eventually { collecting.first })
      server.write("go", "")
      pid = asking.value
      eventually { ask.last == pid }
      [low, nice(pid)]
    end

    # After a pause that had to wait for a processor the next ones have the usual priority, which a busy machine may bring about.
    it "is the lowest while a worker collects, and its own afterwards" do
      eventually { priorities == [19, 0] }
      eventually { priorities(wrapper: %w[nice -n 5]) == [19, 5] }
    end

    it("stays as it is where no other worker serves") { expect(priorities(workers: 1)).to eq([0, 0]) }

    it "stays as it is where the worker could not return to its own" do
      expect(priorities(wrapper: %w[setpriv --bounding-set=-sys_nice])).to eq([0, 0])
    end
  end

  describe "since Ruby 3.4", skip: ("not before" if RUBY_VERSION < "3.4") do
    # Answers with what the collector was at before the request and is after it. /full begins a full mark as Ruby does: in steps.
    # What /kept makes grows old before it is dropped, so that full marks become due.
    let(:told) { <<~'RUBY' }
      live = Array.new(200_000) { |n| [n.to_s, [n]] }
      recent = Array.new(400)
      run lambda { |env|
        before = GC.latest_gc_info(:state)
        made = Array.new(5_000) { |n| "object #{n}" } unless env["PATH_INFO"] == "/none"
        recent.push(Array.new(600) { |n| made[n] }).shift if env["PATH_INFO"] == "/kept"
        GC.start(immediate_mark: false, immediate_sweep: false) if env["PATH_INFO"] == "/full"
        [200, { "content-type" => "text/plain" }, ["#{before} #{GC.latest_gc_info(:state)} #{Process.pid}"]]
      }
    RUBY

    # What the collector is at after each full mark that the server begins.
    let(:noting) { <<~'RUBY' }
      after_fork do
        GC.singleton_class.prepend(Module.new do
          def start(full_mark: true, **how)
            super
            File.write("begun", "#{latest_gc_info(:state)}\n", mode: "a") if full_mark
          end
        end)
      end
    RUBY

    # After each response.
    let(:looking) { 'require "fastrack/gc/auto_gc"; Fastrack::AutoGC.send(:remove_const, :LONGEST); Fastrack::AutoGC::LONGEST = 1' }

    def start(choice, config: nil)
      @server = Server.start(ru: told, config: config, options: { OobGC: choice, MaxWorkers: 1, MaxRequestPerChild: 0 })
    end

    # @return [Array(Symbol, Symbol)] what the collector was at before and after the request
    def ask(path = "/")
      *states, pid = server.get(path).body.split
      eventually { File.read("/proc/#{pid}/stat")[/\) (\w)/, 1] == "S" }
      states.map(&:to_sym)
    end

    it "makes the steps of a full mark that has begun in a request and sweeps after it" do
      states = ["auto", false].to_h do |choice|
        start(choice, config: looking)
        # The rest is swept once it is known how long that takes, and while no client's connection ends.
        [choice, Array.new(10) { [ask("/full"), ask("/none"), *Array.new(5) { ask }][1].first }]
      end
      expect(states.transform_values { |all| all.include?(:none) }).to eq("auto" => true, false => false)
    end

    it "makes a full mark that is due in steps, between two requests" do
      start("auto", config: noting)
      expect(Array.new(2_000) { ask("/kept") }.flatten).not_to include(:marking)
      expect(server.lines_of("begun").tally).to match("marking" => be > 1)
    end
  end

  it "collects nothing after the app has called GC.disable" do
    start({ MaxWorkers: 1 }, config: "after_fork { GC.disable }")
    answers = Array.new(60) { ask("/more") }
    expect(answers.last[2]).to eq(answers.first[0])
  end

  # Four kinds of objects; one of them has a pool that is used up long before the others.
  it "gives the heap room where one pool is used up within a few requests", skip: elsewhere do
    ru = <<~'RUBY'
      live = Array.new(300_000) { |n| "live #{n}" }
      run lambda { |env|
        before = GC.count
        Array.new(1_000) { ["x" * 100] }
        [200, { "content-type" => "text/plain" }, ["#{GC.count - before} #{GC.count} #{GC.stat_heap(2, :heap_eden_slots)}"]]
      }
    RUBY
    (seldom, room), (often, little) = ["auto", false].map do |choice|
      @server = Server.start(ru: ru, options: { OobGC: choice, MaxWorkers: 1 })
      400.times { ask }
      first = ask
      answers = Array.new(300) { ask }
      [answers.last[1] - first[1], answers.last[2]]
    end
    expect(seldom).to be <= often / 2
    expect(room).to be_between(little * 1.2, little * 20)
  end

  # A pool of which hardly more than a fifth is free after a full mark, from /fill on. Each request uses up a fiftieth of it, and has a
  # thousandth of it grow old.
  let(:hardly_free) { <<~'RUBY' }
    live = Array.new(200_000) { Object.new }
    old = Array.new(100)
    count = 0
    pool = -> { GC.stat_heap(0).then { |stat| [stat[:heap_eden_slots], stat[:total_allocated_objects] - stat[:total_freed_objects]] } }
    # Until no pool may grow any more.
    1_000_000.times { Object.new }
    slots = pool.call.first
    run lambda { |env|
      if env["PATH_INFO"] == "/fill"
        GC.start
        slots, used = pool.call
        live.concat(Array.new([(slots * 0.74).to_i - used, 0].max) { Object.new })
        3.times { GC.start }
      end
      made = Array.new(slots / 50) { Object.new }
      old[(count += 1) % old.size] = Array.new(slots / 1_000) { |index| made[index] }
      [200, { "content-type" => "text/plain" }, ["#{GC.stat(:major_gc_count)} #{Process.pid}"]]
    }
  RUBY

  it "leaves few full marks where a pool is hardly freer after them", skip: ("not before Ruby 3.4" if RUBY_VERSION < "3.4") do
    # Room for requests is not the matter here.
    room = <<~RUBY
      require "fastrack/gc/auto_gc"
      Fastrack::HeapRoom.send(:remove_const, :REQUESTS)
      Fastrack::HeapRoom::REQUESTS = 0
    RUBY
    none = "#{room}Fastrack::HeapRoom.prepend(Module.new { def make = nil })\n"
    few, many = [room, none].map do |config|
      @server = Server.start(ru: hardly_free, config: config, options: { OobGC: "auto", MaxWorkers: 1, MaxRequestPerChild: 0 })
      200.times { ask }
      before = ask("/fill").first
      Array.new(1_500) { ask_and_rest.first }.last - before
    end
    expect(many).to be > 10
    expect(few).to be <= many / 2
  end

  it "knows how many objects Ruby makes before it collects", skip: ("of each pool since Ruby 3.2" if RUBY_VERSION >= "3.2") do
    script = <<~'RUBY'
      keep, count = [], GC.count
      # Until the heap is to grow by pages.
      keep << Object.new while GC.count == count
      GC.start
      room, count = Fastrack::YoungHeap.new.pool(40).room, GC.count
      print (1..).find { Object.new && GC.count > count }.fdiv(room)
    RUBY
    output, = Open3.capture2(RbConfig.ruby, "-I", "lib", "-r", "fastrack/gc/young_heap", "-e", script, chdir: Server::ROOT)
    expect(Float(output)).to be_between(0.9, 1.1)
  end

  describe "room in the heap", skip: ("none before Ruby 3.3" if RUBY_VERSION < "3.3") do
    before do
      require "fastrack/native"
      require "fastrack/gc/auto_gc"
    end

    # Those for which there is to be room.
    let(:requests) { RUBY_VERSION < "3.4" ? 50 : 70 }

    # A heap of 40 MB, of which 10 may be added.
    let(:heap) { double(forced: { 40 => 3, 160 => 0 }, fullest: 160, bytes: 40_000_000) }

    # Objects that are made for room before a collection that `responses` come after the last one. In these 2,400 objects
    # of 160 bytes were made, and there are 100 free slots of `slots`.
    def made(maker, responses, room: 2_500, unused: 7_000, slots: 10_000)
      allow(heap).to receive(:pool).with(40).and_return(double(unused: unused, slots: 100_000))
      allow(heap).to receive(:pool).with(160).and_return(double(unused: 100, begun: 600, made: 3_000, room: room, slots: slots))
      calls = []
      allow(Fastrack).to receive(:make_objects) { |*call| calls << call }
      maker.note(responses)
      maker.make
      maker.collected
      calls
    end

    it "is made where it lasts for less than seventy requests on Ruby 3.4, for less than fifty before, and only then" do
      maker = Fastrack::HeapRoom.new(heap)
      expect([made(maker, 25), made(maker, requests - 2)]).to eq([[[100 + (requests * 96) - 2_500, 160]], []])
      expect(made(maker, 25, room: requests * 88)).to eq([])
    end

    it "is no longer made once a quarter was tried where the system has no more memory" do
      maker = Fastrack::HeapRoom.new(heap)
      made(maker, 1)
      allow(Fastrack).to receive(:make_objects).and_raise(NoMemoryError)
      maker.note(1)
      expect { maker.make }.not_to raise_error
      expect([GC.enable, made(maker, 1)]).to eq([false, []])
    end
  end
end
