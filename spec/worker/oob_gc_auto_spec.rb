# frozen_string_literal: true

require_relative "../../lib/fastrack/gc/auto_gc"

RSpec.describe "OobGC=auto", :quiet, exec: "what is in the heap decides",
                                    skip: ("not before Ruby 3.3" unless Fastrack::AutoGC.possible?) do
  # Answers with the collections and the full marks before and after it has made garbage, and with its pid. /old makes objects that
  # stay, so that a full mark becomes due. /wait lasts until there is a file `over`.
  let(:allocating) { <<~'RUBY' }
    old = Array.new(50_000) { |n| "live #{n}" }
    run lambda { |env|
      counts = -> { [GC.count, GC.stat(:major_gc_count)] }
      before = counts.call
      Array.new(1_500) { |n| "object #{n}" }
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

  attr_reader :server

  def start(options = {}, config: nil)
    @server = Server.ready(ru: allocating, config: config, options: { OobGC: "auto", MaxRequestPerChild: 0 }.merge(options))
  end

  # @return [Array<Integer>] the answer
  def ask(path = "/") = server.get(path).body.split.map(&:to_i)

  # The same. Returns when all threads of the only worker are idle: a thread may still work when its client has the answer.
  def ask_and_rest(path = "/") = ask(path).tap { eventually { resting? } }

  def resting?
    Dir.glob("/proc/#{server.workers.first}/task/*/stat").all? { |stat| File.read(stat)[/\) (\w)/, 1] == "S" }
  rescue Errno::ENOENT, Errno::ESRCH
    # A thread has just ended.
    false
  end

  # Collections in requests, by the answers.
  def in_requests(answers) = answers.sum { |before, _, after| after - before }

  # Pids of the workers that have begun to collect.
  def collecting = server.lines_of("collecting").map(&:to_i)

  # Asks until a worker collects, and gives its pid.
  def await_collection = eventually { ask && collecting.first }

  { "one thread" => {}, "several threads" => { MaxThreads: 3 } }.each do |what, options|
    it "collects between requests, and makes full marks there, with #{what}" do
      young, full, all = [{ OobGC: "auto" }, { OobGC: false }].map do |choice|
        start({ MaxWorkers: 1, **options, **choice })
        60.times { ask_and_rest }
        before = ask_and_rest("/old")
        answers = Array.new(200) { ask_and_rest }
        [in_requests(answers), answers.sum { |answer| answer[3] - answer[1] }, answers.last[3] - before[3]]
      end.transpose
      # Without it Ruby has collected in requests.
      expect(young).to match([be <= young.last / 4, be > 5])
      expect([full.first, all.first]).to match([0, be > 0])
    end
  end

  it "never has two workers collect at once, and the others serve meanwhile" do
    start({ MaxWorkers: 3 }, config: held)
    first = await_collection
    answers = Array.new(100) { ask }
    expect(answers.map(&:last)).not_to include(first)
    # The others have collected in requests.
    expect([in_requests(answers), collecting]).to match([be > 0, [first]])
    server.write("go", "")
    eventually { ask && collecting.size > 1 }
  end

  it "lets the others collect when a worker was killed that did" do
    start({ MaxWorkers: 2 }, config: held)
    first = await_collection
    Process.kill(:KILL, first)
    eventually { ask && collecting.uniq.size > 1 }
    server.write("go", "")
  end

  # As Thread#raise and Timeout may do.
  it "has workers collect after an exception has met the call that begins a pause" do
    start({ MaxWorkers: 2 }, config: <<~'RUBY')
      after_fork do
        GC.singleton_class.prepend(Module.new do
          def start(**) = File.write("collecting", "#{Process.pid}\n", mode: "a") && super
        end)
        TracePoint.new(:c_return) do |point|
          next unless %i[begin_pause while_nobody_waits].include?(point.method_id) && point.return_value && !File.exist?("met")

          File.write("met", "")
          raise "met"
        end.enable
      end
    RUBY
    eventually { ask && File.exist?(File.join(server.dir, "met")) }
    before = collecting.size
    eventually { ask && collecting.size > before }
  end

  it "has another worker serve a kept-alive client of the one that collects" do
    start({ MaxWorkers: 2 }, config: held)
    client = KeptPeer.new(server)
    first = eventually { client.get("/") && collecting.first }
    expect(client.get("/").body.split.last.to_i).not_to eq(first)
    server.write("go", "")
  end

  { "another thread of the worker has a request" => { MaxWorkers: 1, MaxThreads: 3 }, "no other worker is idle" => { MaxWorkers: 2 } }.each do |what, options|
    it "leaves collections to Ruby while #{what}" do
      start(options, config: held)
      client = KeptPeer.new(server).ask("/wait")
      eventually { server.lines_of("waiting").any? }
      expect(in_requests(Array.new(80) { ask })).to be > 0
      expect(collecting).to be_empty
      server.write("over", "")
      expect(client.answer.status).to eq(200)
      await_collection
      server.write("go", "")
    end
  end

  # Before Ruby 3.4 each pool grows by itself.
  it "gives the heap room where one pool is used up within a few requests", skip: ("not since Ruby 3.4" if RUBY_VERSION >= "3.4") do
    ru = <<~'RUBY'
      live = Array.new(300_000) { |n| "live #{n}" }
      run lambda { |env|
        Array.new(1_000) { ["x" * 100] }
        [200, { "content-type" => "text/plain" }, ["#{GC.count} #{GC.stat_heap(2, :heap_eden_slots)}"]]
      }
    RUBY
    (seldom, room), (often, little) = ["auto", false].map do |choice|
      @server = Server.start(ru: ru, options: { OobGC: choice, MaxWorkers: 1, MaxRequestPerChild: 0 })
      150.times { ask_and_rest }
      first = ask_and_rest
      answers = Array.new(100) { ask_and_rest }
      [answers.last[0] - first[0], answers.last[1]]
    end
    expect(seldom).to be <= often / 2
    expect(room).to be_between(little * 1.2, little * 20)
  end

  it "collects nothing after the app has called GC.disable" do
    start({ MaxWorkers: 1 }, config: "after_fork { GC.disable }")
    answers = Array.new(60) { ask }
    expect(answers.last[2]).to eq(answers.first[0])
  end
end
