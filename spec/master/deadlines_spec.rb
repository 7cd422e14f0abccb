# frozen_string_literal: true

# No state of a worker lasts for ever: the master knows each, and what it may take.
RSpec.describe "The time that a worker may take" do
  processes = "processes and signals"

  # What the master grants beyond, in seconds, is made short, as is how often it looks.
  def grace = GcMode.patient(0.8)

  def start(config: "", grace: self.grace, **keywords)
    quick = { GRACE: grace, INTERVAL: 0.1 }.map do |name, seconds|
      "Fastrack::WorkerTimeout.send(:remove_const, :#{name}); Fastrack::WorkerTimeout::#{name} = #{seconds}"
    end
    Server.start(config: "#{quick.join("; ")}; #{config}", **keywords)
  end

  # What a worker gets that has a backtrace to write, however busy the machine is.
  def long_grace = GcMode.patient(2)

  # With workers that have booted: until then other limits apply.
  def ready(**keywords) = start(**keywords).tap(&:await_ready)

  def frozen(pid)
    Process.kill(:STOP, pid)
    eventually { ProcessTable.entry(pid).state == "T" }
  end

  describe "for callbacks after a response" do
    let(:app) { <<~'RUBY' }
      run lambda { |env|
        text = ->(body) { [200, { "content-type" => "text/plain" }, [body]] }
        callback = env["PATH_INFO"].delete_prefix("/")
        # Requests that are to be answered have time enough, whatever else the machine does. Each callback gets a time of its own.
        env["fastrack.timeout"].call(600)
        block = lambda do |*|
          File.write("called", "#{Process.pid}\n", mode: "a")
          env["fastrack.timeout"].call(Float(env["QUERY_STRING"])) unless env["QUERY_STRING"].empty?
          sleep
        end
        (env["rack.#{callback}"] ||= []) << block if %w[after_reply response_finished].include?(callback)
        text.call(Process.pid.to_s)
      }
    RUBY

    def hang(server, path = "/after_reply")
      called = server.lines_of("called").size
      response = server.get(path)
      eventually(20, "no callback") { server.lines_of("called").size > called }
      response
    end

    (HttpApps.rack3? ? %w[after_reply response_finished] : %w[after_reply]).each do |callback|
      it "is RequestTimeout: rack.#{callback} that sleeps for ever costs its worker, which is replaced" do
        server = start(ru: app, options: { MaxWorkers: 2, RequestTimeout: GcMode.patient(1) })
        before = server.await_workers(2)
        # On a slow machine the first one's successor may be asked, too.
        eventually do
          expect(hang(server, "/#{callback}").status).to eq(200)
          (before - server.lines_of("called").map(&:to_i)).empty?
        end
        server.await_others(before)
        expect(server.get.status).to eq(200)
        server.await_log(%r{^fastrack: callbacks of GET /#{callback} have taken \d+\.\d s: this worker ends \(worker #{before.first}\)$})
        server.await_log(%r{^    #{server.dir}/config.ru:\d+:in .*sleep'$})
        server.await_log(%r{^fastrack: worker \d \(pid #{before.last}\) exited with status 124 \(request timeout\) while serving callbacks of GET /#{callback} for \d+\.\d s$})
      end
    end

    it "does not end the worker's other connections" do
      server = start(ru: app, options: { MaxWorkers: 1, RequestTimeout: GcMode.patient(1) })
      HttpPeer.open(server) do |idle|
        HttpPeer.open(server) do |hanging|
          { idle => "/", hanging => "/after_reply" }.each do |peer, path|
            peer.write("GET #{path} HTTP/1.1\r\nHost: h\r\n\r\n").read_until(/\r\n\r\n\d+/)
          end
          [idle, hanging].each do |peer|
            peer.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            expect(peer.read_until(/\r\n\r\n\d+HTTP.*\r\n\r\n\d+/m).scan(/HTTP\S+ 200/).size).to eq(2)
          end
        end
      end
    end

    it "can be set by the callback itself" do
      server = start(ru: app, options: { MaxWorkers: 1, RequestTimeout: 600 })
      before = server.await_workers(1)
      hang(server, "/after_reply?0.2")
      server.await_others(before)
    end

    it "ends after HUP even with a RequestTimeout of 0: by then GracefulTimeout counts" do
      server = start(ru: app, grace: long_grace, options: { MaxWorkers: 1, RequestTimeout: 0, GracefulTimeout: 0.1 })
      before = server.await_workers(1)
      hang(server)
      server.signal(:HUP)
      server.await_log(%r{^fastrack: worker 0 \(pid #{before.first}\) takes too long:\n  the main thread:\n    #{server.dir}/config.ru:\d+:in .*sleep'$})
      server.await_others(before)
      server.await_log(%r{^fastrack: worker 0 \(pid #{before.first}\) has not finished within 0.1 s: killing it; it is serving callbacks of GET /after_reply for \d+\.\d s$})
    end
  end

  describe "to boot", once: processes do
    def hanging(code)
      %(after_fork { (File.write("stuck", "\#{Process.pid}\\n", mode: "a"); #{code}) if File.exist?("hang") })
    end

    def serve(config = hanging("sleep"), **options)
      start(ru: Rackups::PID, grace: long_grace, options: { MaxWorkers: 2, **options }, config: config)
    end

    def hang_on_hup(server)
      server.write("hang", "")
      server.signal(:HUP)
      eventually { server.lines_of("stuck").last&.to_i }
    end

    it "is WorkerBootTimeout: an after_fork that hangs is named in the log, and the old workers serve on" do
      server = serve(WorkerBootTimeout: GcMode.patient(3))
      before = server.await_ready.await_workers(2)
      stuck = hang_on_hup(server)
      server.await_log(%r{^fastrack: worker \d \(pid #{stuck}\) takes too long:\n  the main thread:\n    #{server.dir}/fastrack.rb:1:in .*sleep'$})
      server.await_log(/^fastrack: worker \d \(pid #{stuck}\) has not been ready within [\d.]+ s \(WorkerBootTimeout\): killing it$/)
      server.await_log(/^fastrack: worker \d \(pid #{stuck}\) was killed by the master \(WorkerBootTimeout\)$/)
      server.remove("hang")
      server.await_workers(2) { |found| found == before }
      server.renew(before)
      expect(server.get.status).to eq(200)
    end

    # The second where native code heeds no signal.
    { "sleeps" => "sleep", "is stopped" => "Process.kill(:STOP, Process.pid)" }.each do |what, code|
      it "does not keep a later HUP from its turn where its after_fork #{what}" do
        server = serve(hanging(code))
        before = server.await_ready.await_workers(2)
        stuck = hang_on_hup(server)
        server.remove("hang")
        server.signal(:HUP)
        server.await_workers(2) { |found| (found & [*before, stuck]).empty? }
        expect(server.get.status).to eq(200)
      end
    end
  end

  # Hooks of generation 0, which the master waits for.
  describe "from a hook of generation 0", once: processes do
    # A worker has died, and the hook that comes then is in a wait that lasts for as long as there is a file `hang`.
    def hanging(hook, limit = 0)
      server = Server.ready(ru: Rackups::PID, options: { MaxWorkers: 2, ErrRespawnInterval: 0, WorkerBootTimeout: limit }, config: <<~RUBY)
        #{hook} do
          if File.exist?("hang")
            File.write("begun", "b", mode: "a")
            sleep 0.01 while File.exist?("hang")
            File.write("done", "d", mode: "a")
          end
        end
      RUBY
      server.write("hang", "")
      server.signal(:KILL, to: server.workers.first)
      server.await_file("begun")
      server
    end

    # @return [Boolean] whether each that has begun was done
    def done?(server) = %w[begun done].map { |name| File.size(server.file(name)) }.uniq.one?

    { "before_fork" => "cannot spawn worker", "after_worker_exit" => "after_worker_exit failed" }.each do |hook, failure|
      it "is WorkerBootTimeout: #{hook} that hangs is named in the log, and the master goes on" do
        server = hanging(hook, GcMode.patient(1))
        expect(server.get.status).to eq(200)
        server.await_log(/^fastrack: #{failure}.*: it is not done within [\d.]+ s .*\n(?:.*\n)*?.*fastrack\.rb:4/)
        server.remove("hang")
        server.await_workers(2)
      end

      (hook == "before_fork" ? %w[TERM QUIT INT] : %w[TERM]).each do |name|
        it "is over when the server is to end: #{hook} that hangs does not keep #{name} from it" do
          server = hanging(hook)
          server.signal(name)
          expect(server.wait.exitstatus).to eq(0)
          expect(server.log).to match(/^fastrack: #{failure}.*: #{name} has come meanwhile .*/)
        end
      end
    end

    it "is not over for a HUP, which is no end" do
      server = hanging("before_fork")
      2.times { server.signal(:HUP) }
      server.remove("hang")
      server.await_workers(2)
      expect(server.log).not_to include("has come meanwhile")
      expect(done?(server)).to be(true)
    end

    it "is a moment more for an after_worker_exit when the server is to end" do
      # A moment is long here: it is to last until the file is gone.
      server = hanging("Fastrack::TimeLimit.send(:remove_const, :MOMENT); Fastrack::TimeLimit::MOMENT = 20; after_worker_exit")
      server.signal(:TERM)
      server.remove("hang")
      expect(server.wait.exitstatus).to eq(0)
      expect(server.log).not_to include("after_worker_exit failed")
      expect(done?(server)).to be(true)
    end

    it "does not keep a server that drains longer than DrainDelay" do
      server = hanging("drain_delay 1; before_fork")
      server.signal(:TERM)
      expect(server.wait.exitstatus).to eq(0)
    end
  end

  it "is over for a server that has never served when its after_fork always fails, with one line and status 1", once: processes do
    server = Server.fail_to_start(ru: Rackups::PID, options: { MaxWorkers: 2, ErrRespawnInterval: 0.01 }, config: <<~RUBY)
      after_fork { File.write("tries", ".", mode: "a"); exit 3 }
    RUBY
    expect(server.status.exitstatus).to eq(1)
    expect(server.lines_of("tries").first.size).to be_between(20, 22)
    expect(server.log).to match(/^fastrack: the last 2\d workers failed to boot, and none ever was ready: the server ends\n\z/)
    # They were killed a moment ago.
    eventually { server.processes.empty? }
  end

  describe "while it is stopped (SIGSTOP)", once: processes do
    it "is WorkerTimeout, though it is idle" do
      server = ready(ru: Rackups::PID, options: { MaxWorkers: 2, WorkerTimeout: 0.5 })
      before = server.await_workers(2)
      before.each { |pid| server.signal(:STOP, to: pid) }
      server.await_others(before)
      expect(server.get.status).to eq(200)
      server.await_log(/^fastrack: worker \d \(pid \d+\) was killed by the master \(WorkerTimeout\)$/, 2)
      expect(server.log.scan(/^fastrack: worker \d \(pid \d+\) has been stopped by a signal or a debugger for 0.5 s \(WorkerTimeout\): killing it$/).size).to eq(2)
    end

    it "does not count where it goes on now and then" do
      server = ready(ru: Rackups::PID, options: { MaxWorkers: 1, WorkerTimeout: limit = GcMode.patient(3) })
      worker = server.await_workers(1).first
      # More than its time and the master's looks in all, and a small part of it each time.
      12.times do
        frozen(worker)
        sleep(limit / 10.0)
        server.signal(:CONT, to: worker)
        server.get
      end
      expect(server.workers).to eq([worker])
    end
  end

  describe "to stop", once: processes do
    it "is GracefulTimeout on HUP, for a request without a limit" do
      server = start(ru: Rackups::GATE, options: { MaxWorkers: 1, GracefulTimeout: 0.1, RequestTimeout: 0 })
      before = server.await_workers(1)
      SlowRequest.new(server)
      server.renew(before)
      server.await_log(%r{^fastrack: worker 0 \(pid #{before.first}\) has not finished within 0.1 s: killing it; it is serving GET /slow for \d+\.\d s$})
    end

    it "is that of the request where that is longer, so that HUP loses none" do
      server = start(ru: Rackups::GATE, options: { MaxWorkers: 1, GracefulTimeout: 0.1, RequestTimeout: 600 })
      before = server.await_workers(1)
      request = SlowRequest.new(server)
      server.signal(:HUP)
      server.await_workers(2)
      # Longer than GracefulTimeout, and what the master grants beyond.
      sleep(grace + 0.4)
      expect(request.finish.body).to eq(before.first.to_s)
      server.await_others(before)
    end
  end

  let(:app) { <<~'RUBY' }
    require "fiddle"
    # sigwait(3) for no signal at all: native code that never returns and keeps Ruby's lock.
    SIGWAIT = Fiddle::Function.new(Fiddle.dlopen(nil)["sigwait"], [Fiddle::TYPE_VOIDP] * 2, Fiddle::TYPE_INT, need_gvl: true)
    run lambda { |env|
      Thread.new { sleep 0.1; File.write("stuck", ""); SIGWAIT.call("\0" * 128, "\0" * 8) } if env["PATH_INFO"] == "/hang"
      [200, {}, [Process.pid.to_s]]
    }
  RUBY

  it "is WorkerTimeout for a thread that keeps Ruby's lock between two requests: another worker serves the clients", once: processes do
    server = start(ru: app, options: { MaxWorkers: 1, WorkerTimeout: GcMode.patient(1) })
    KeptPeer.open(server) do |kept|
      first = kept.get("/hang").body
      server.await_file("stuck")
      # The thread gets the lock a moment after it has written the file.
      eventually { kept.get("/").body != first }
      server.await_log(/^fastrack: stuck between two requests for \d+\.\d s: this worker ends \(worker #{first}\)$/)
      # It is not the main thread, which is the one that shows its frames elsewhere.
      server.await_log(/^  in native code:\n(.*\n)*?.*\bsigwait\b/) unless Portable::ON
    end
  end

  it "is GracefulTimeout for what runs at the end of a worker that was told to stop by somebody else", once: processes do
    config = "Fastrack::Worker.prepend(Module.new { private def serve(*) = super.then { sleep } })"
    server = start(ru: Rackups::PID, grace: long_grace, options: { MaxWorkers: 1, GracefulTimeout: 0.1 }, config: config)
    before = server.await_ready.await_workers(1)
    server.signal(:TERM, to: before.first)
    server.await_others(before)
    server.await_log(%r{^fastrack: worker 0 \(pid #{before.first}\) takes too long:\n  the main thread:\n    #{server.dir}/fastrack.rb:1:in .*sleep'$})
    server.await_log(/^fastrack: worker 0 \(pid #{before.first}\) has not finished within 0.1 s: killing it; it is serving no request$/)
    # The others must not hang.
    server.signal(:INT)
  end

  it "is up to the worker for a moment where the whole machine has stood still, so that its client gets a 504", once: processes do
    server = start(ru: 'run ->(_) { File.write("waiting", ""); sleep }', grace: long_grace, options: { MaxWorkers: 1, RequestTimeout: limit = GcMode.patient(2) })
    server.await_workers(1)
    client = Thread.new { server.get("/") }
    server.await_file("waiting")
    all = [server.master, *server.workers]
    all.each { |pid| frozen(pid) }
    # Longer than RequestTimeout and what the master grants beyond.
    sleep(limit + long_grace + 0.5)
    server.signal(:CONT, to: server.master)
    # The master is the first to run.
    eventually { ProcessTable.entry(server.master).state == "S" }
    server.signal(:CONT, to: all.last)
    expect(client.value.status).to eq(504)
    expect(server.log).not_to include("killing it")
  end
end
