# frozen_string_literal: true

# A worker that has several requests in the app at once.
RSpec.describe "MaxThreads" do
  include ThreadsApp

  it "has that many requests in the app at once where they wait, and no more" do
    serve
    expect(Array.new(5) { request("/meet?5") }.map { |one| one.value.body.to_i }.sort).to eq([1, 2, 3, 4, 5])
    ones = waiting(5)
    others = Array.new(5) { request("/wait?go") }
    go
    expect([statuses(ones + others), server.get("/peak?wait").body]).to match([all(eq(200)), "5"])
  end

  it "begins no request beside one that computes", if: RUBY_VERSION >= "3.2" do
    serve
    expect(statuses(Array.new(5) { request("/burn?0.05") })).to all(eq(200))
    expect(server.get("/peak?burn").body).to eq("1")
  end

  # How many of so many requests were begun beside others.
  define_method(:begun_beside) do |count, path|
    before = server.get(path).body.to_i
    clients = Array.new(4) do
      Thread.new { KeptPeer.new(server).then { |peer| Array.new(count / 4) { peer.get(path).status }.tap { peer.close } } }
    end
    expect(clients.flat_map(&:value)).to all(eq(200))
    server.get(path).body.to_i - before
  end

  it "begins hardly any request beside others that hardly wait, until requests wait again", alone: "waits of a millisecond", if: RUBY_VERSION >= "3.2" do
    serve
    # At first it does not know. Where other processes take the processors, the waits of a millisecond last for many.
    counts = []
    eventually(20, -> { "#{counts.join(", ")} of 60 each" }) { (counts << begun_beside(60, "/page?0.0012")).last < 20 }
    expect(Array.new(5) { request("/meet?5") }.map { |one| one.value.body.to_i }.sort).to eq([1, 2, 3, 4, 5])
  end

  it "begins a request beside others that wait again and again, and never for long" do
    serve
    ones = (1..5).map { |count| request("/poll?go").tap { eventually(10) { server.lines_of("waiting").size == count } } }
    go
    expect(statuses(ones)).to all(eq(200))
  end

  it "says so in the env, and keeps names and locals of the threads" do
    serve(threads: 3)
    ones = Array.new(3) { request("/meet?3") }
    expect(statuses(ones)).to all(eq(200))
    waiting(1)
    expect(server.get("/env").body).to match(/\Atrue fastrack thread [123]\z/)
    expect(Array.new(20) { server.get("/local").body }).to all(eq("true"))
    go
  end

  it "is 1 by default, with one thread and rack.multithread false" do
    serve(threads: 1)
    expect(server.get("/env").body).to eq("false ")
    expect(Dir.children("/proc/#{server.workers.first}/task").size).to be <= 3
  end

  variable = { env: { RAILS_MAX_THREADS: "2" } }
  { "RAILS_MAX_THREADS, if nothing else says it" => [2, { fastrack: true, **variable }],
    "-t with two numbers" => [2, { fastrack: true, arguments: ["-t", "1:2"] }],
    "-t with one, whatever RAILS_MAX_THREADS is" => [3, { fastrack: true, arguments: ["-t", "3"], **variable }],
    "max_threads in a ConfigFile" => [3, { config: %(max_threads ENV.fetch("RAILS_MAX_THREADS", 3)\n) }],
    "threads in a ConfigFile" => [2, { config: "threads 1, ENV.fetch('RAILS_MAX_THREADS', 3)\n", **variable }],
    "no RAILS_MAX_THREADS for rackup without a puma.rb: such an app need not be thread-safe" => [1, variable],
    "RAILS_MAX_THREADS for rackup with a puma.rb" =>
      [2, { options: { ConfigFile: "puma.rb" }, files: { "puma.rb" => "workers 1\n" }, **variable }],
    "none with a ConfigFile of Unicorn's either" => [1, { config: "worker_processes 1\n", **variable }] }.each do |what, (count, keywords)|
    it "is set by #{what}" do
      @server = Server.ready(ru: ThreadsApp::RU, options: { MaxWorkers: 1 }, **keywords)
      expect(statuses(Array.new(count) { request("/meet?#{count}") })).to all(eq(200))
      expect(server.log[/^fastrack: workers answer up to (\d) requests at once/, 1]).to eq((count.to_s if count > 1))
    end
  end

  it "answers an overdue request with 504 at once, lets the others finish, and then replaces the worker" do
    serve(threads: 3, options: { RequestTimeout: 30 })
    pid = server.workers
    ones = waiting(2)
    expect(server.get("/sleep?0.3").status).to eq(504)
    eventually { server.log.match?(%r{^fastrack: GET /sleep has taken \d+\.\d s: this worker ends \(worker #{pid.first}\)$}) }
    eventually { server.log.match?(%r{/config.ru:\d+:in .*sleep'$}) }
    expect(server.workers).to eq(pid)
    go
    expect(statuses(ones)).to eq([200, 200])
    server.await_workers(1) { |found| found != pid }
    expect(server.get("/").status).to eq(200)
    eventually { server.log.match?(/exited with status 124 \(request timeout\)/) }
  end

  it "knows which client has gone" do
    serve(threads: 3)
    ones = waiting(1)
    kept = KeptPeer.new(server).ask("/gone?there")
    left = KeptPeer.new(server).ask("/gone?never")
    eventually { server.lines_of("waiting").size == 3 }
    left.close
    expect(eventually { server.lines_of("gone").first }).to eq("true")
    go("there")
    expect([kept.answer.status, server.lines_of("gone")]).to eq([200, %w[true false]])
    expect(server.get("/beside").body).to eq("false")
    go
    expect(statuses(ones)).to eq([200])
  end

  it "hijacks, streams, reads and calls back for the right request" do
    serve(threads: 4, options: { StreamBody: true })
    ones = waiting(1)
    all = Array.new(6) do |index|
      [request("/hijack?#{index}"), request("/stream?#{index}"), Thread.new { server.post("/read", "body#{index}") }, request("/after?#{index}")]
    end
    all.each_with_index do |(hijacked, streamed, read, after), index|
      expect([hijacked.value.body, streamed.value.body]).to eq([index.to_s, Array.new(index) { |i| "#{i}," }.join])
      expect([read.value.body, after.value.status]).to eq(["body#{index}", 200])
    end
    eventually { server.lines_of("after").sort == %w[0 1 2 3 4 5] }
    go
    expect(statuses(ones)).to eq([200])
  end

  it "lets a request fork at once beside an overdue one", alone: "seconds of a fork" do
    ru = <<~'RUBY'
      run lambda { |env|
        if env["PATH_INFO"] == "/hang"
          env["fastrack.timeout"].call(0.3)
          sleep
        end
        sleep 0.005 until File.exist?(File.join(File.dirname(File.expand_path(__FILE__)), "go"))
        times = Array.new(3) do
          began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
          Process.wait(fork { exit! })
          Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
        end
        [200, { "content-type" => "text/plain" }, [times.min.to_s]]
      }
    RUBY
    serve(ru: ru, threads: 3, options: { RequestTimeout: 30 })
    one = request("/")
    expect(server.get("/hang").status).to eq(504)
    go
    # It would wait for a second each time.
    expect(one.value.body.to_f).to be_between(0.0001, 0.9)
  end

  it "keeps each request's objects though garbage is collected at each allocation, and the heap compacted" do
    ru = <<~'RUBY'
      run lambda { |env|
        name = env["QUERY_STRING"]
        env["rack.response_finished"]&.push(->(*) { name << "" })
        # At each allocation, but of what is new only: a full one takes ten times as long.
        GC.stress = name == "end" ? false : 1
        sleep 0.01
        GC.compact if name.end_with?("0")
        body = env["rack.input"].read
        [200, { "content-type" => "text/plain", "x-name" => env["HTTP_X_NAME"] }, Enumerator.new { |parts| parts << name << body }]
      }
    RUBY
    serve(ru: ru, options: { RequestTimeout: 0 })
    answers = Array.new(6) do |client|
      Thread.new do
        peer = KeptPeer.new(server)
        Array.new(2) { |nr| "n#{client}#{nr}".then { |name| [name, peer.get("/?#{name}", "X-Name: #{name}", verb: "POST", body: "b#{name}")] } }
      end
    end.flat_map(&:value)
    # So that the server ends as quickly as others.
    server.get("/?end")
    answers.each { |name, answer| expect([answer.status, answer.headers["x-name"], answer.body]).to eq([200, name, "#{name}b#{name}"]) }
  end

  it "finishes all requests when it is told to stop" do
    serve(threads: 4)
    idle = KeptPeer.new(server)
    idle.get("/")
    ones = waiting(3)
    server.signal(:TERM)
    expect(idle).to be_closed_without_a_word
    go
    expect([statuses(ones), server.wait.exitstatus]).to eq([[200, 200, 200], 0])
  end

  it "replaces a thread that the app ends, and answers its client" do
    serve(threads: 3)
    ones = waiting(1)
    expect(statuses(Array.new(4) { request("/kill") })).to eq([500] * 4)
    expect(statuses(Array.new(2) { request("/raise") })).to eq([500] * 2)
    expect([statuses(Array.new(2) { request("/meet?2") }), server.await_workers(1).size]).to eq([[200, 200], 1])
    go
    expect(statuses(ones)).to eq([200])
  end

  it "ends in order after exit in any thread, and answers all requests" do
    serve(threads: 3)
    before = server.workers
    ones = waiting(1)
    exits = Array.new(2) { request("/exit") }
    expect(statuses(exits)).to all(eq(500).or(eq(502)))
    go
    expect(statuses(ones)).to eq([200])
    server.await_workers(1) { |found| found != before }
    expect(server.get("/").status).to eq(200)
  end

  it "runs a puma.rb's out_of_band only when no other thread has a request, and oobgc as well" do
    serve(threads: 3, options: { ConfigFile: "puma.rb" }, files: { "puma.rb" => <<~RUBY })
      oobgc true
      min_gc_per_request 1
      max_gc_per_request 1
      out_of_band { File.write("hooks", "\#{GC.count}\\n", mode: "a") }
    RUBY
    ones = waiting(1)
    3.times { server.get("/") }
    expect(server.lines_of("hooks")).to eq([])
    go
    expect(statuses(ones)).to eq([200])
    eventually { server.lines_of("hooks").any? }
    eventually do
      server.get("/")
      server.lines_of("hooks").map(&:to_i).then { |counts| counts.last > counts.first }
    end
  end

  # As Thread#raise and Timeout may do.
  it "runs a puma.rb's out_of_band after an exception has met its beginning" do
    serve(threads: 3, options: { ConfigFile: "puma.rb" }, files: { "puma.rb" => <<~RUBY })
      on_worker_boot do
        TracePoint.new(:c_return) do |point|
          next if point.method_id != :try_lock || File.exist?("met")

          File.write("met", "")
          raise "met"
        end.enable
      end
      out_of_band { File.write("hooks", "ran\n") }
    RUBY
    eventually { server.get("/") && File.exist?(File.join(server.dir, "met")) }
    eventually { server.get("/") && server.lines_of("hooks").any? }
  end

  it "runs before_worker_shutdown though on_thread_exit calls exit" do
    serve(threads: 1, config: "on_thread_exit { exit }\nbefore_worker_shutdown { File.write('hooks', 'shutdown') }\n")
    expect(server.get("/").status).to eq(200)
    server.stop
    expect(server.lines_of("hooks")).to eq(["shutdown"])
  end

  it "calls on_thread_start and on_thread_exit in each thread" do
    config = <<~RUBY
      note = ->(what) { File.write("hooks", "\#{what} \#{Thread.current.name}\\n", mode: "a") }
      on_thread_start { note.call("start") }
      on_thread_exit { note.call("exit") }
    RUBY
    # The main thread answers requests, too, where there are no streams.
    { "" => 1, "max_streams 0\n" => 2 }.each do |words, first|
      serve(threads: 3, config: config + words)
      threads = [*("" if first == 2), *first.upto(3).map { |number| "fastrack thread #{number}" }]
      eventually { server.lines_of("hooks").sort == threads.map { |name| "start #{name}" } }
      expect(server.get("/").status).to eq(200)
      server.stop
      expect(server.lines_of("hooks").sort).to eq(%w[exit start].flat_map { |what| threads.map { |name| "#{what} #{name}" } })
    end
  end

  # glibc reserves 64 MB of addresses for an arena: what is in use of it, and the rest.
  def arenas(pid)
    ranges = File.readlines("/proc/#{pid}/maps").map { |line| line[/\A[\h-]+/].split("-").map(&:hex) }
    ranges.each_cons(2).count { |(from, middle), (after, to)| middle == after && to - from == 64 << 20 && (from % (64 << 20)).zero? }
  end

  it "has its threads share an arena of malloc, unless the environment says otherwise", linux: "glibc" do
    skip "this is no glibc" unless RbConfig::CONFIG["host_os"] == "linux-gnu" || RUBY_PLATFORM.end_with?("linux-gnu")
    counts = [{}, { MALLOC_ARENA_MAX: "8" }].map do |env|
      @server = Server.start(ru: ThreadsApp::RU, options: { MaxWorkers: 1, MaxThreads: 5 }, env: env)
      expect(statuses(Array.new(5) { request("/meet?5") })).to eq([200] * 5)
      arenas(server.workers.first)
    end
    # Others may be from threads of the master.
    expect(counts).to match([be <= 3, be > 3])
  end

  it "lets go of all connections in a process that the app forks" do
    ru = <<~'RUBY'
      run lambda { |env|
        pid = env["PATH_INFO"] == "/fork" && fork { sleep }
        [200, { "content-type" => "text/plain" }, [pid.to_s]].tap { sleep 0.1 unless pid }
      }
    RUBY
    serve(ru: ru, threads: 3)
    others = Array.new(4) { request("/") }
    pids = Array.new(3) { request("/fork") }.map { |one| one.value.body.to_i }
    expect(statuses(others)).to all(eq(200))
    pids.each do |pid|
      eventually { ProcessTable.descriptors(pid).values.compact.grep(/\Asocket:/).empty? }
      Process.kill(:KILL, pid)
    end
  end

  # FASTRACK_SOAK: seconds that it lasts at least.
  it "answers no request with another one's response while workers are recycled and connections handed over" do
    serve(threads: 4, workers: 2, options: { MaxRequestPerChild: 100 })
    before = server.workers
    ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + ENV.fetch("FASTRACK_SOAK", "0").to_f
    wrong = Queue.new
    clients = Array.new(12) do |client|
      Thread.new do
        peer = nil
        (1..).each do |index|
          break if index > 60 && Process.clock_gettime(Process::CLOCK_MONOTONIC) > ends

          peer ||= KeptPeer.new(server)
          answer = peer.get("/request?#{client}-#{index}")
          wrong << [client, index, answer.body] unless answer.body == "#{client}-#{index}"
          peer = peer.close && nil if answer.headers["connection"] == "close" || index % 50 == 0
        end
      end
    end
    clients.each(&:join)
    expect(Array.new(wrong.size) { wrong.pop }).to eq([])
    server.await_others(before)
  end
end
