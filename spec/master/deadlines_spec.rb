# frozen_string_literal: true

require_relative "../spec_helper"
require "support/http_helpers"
require "support/http_peer"

# No state of a worker lasts for ever: the master knows each, and what it may take.
RSpec.describe "The time that a worker may take" do
  # What the master grants and how often it looks is made short: most examples would wait for nothing else.
  def start(config: "", **keywords)
    quick = { GRACE: 0.8, INTERVAL: 0.1 }.map do |name, seconds|
      "Fastrack::WorkerTimeout.send(:remove_const, :#{name}); Fastrack::WorkerTimeout::#{name} = #{seconds}"
    end
    Server.start(config: "#{quick.join("; ")}; #{config}", **keywords)
  end

  def expect_log(server, pattern)
    eventually(20, -> { "no #{pattern.inspect} in:\n#{server.log}" }) { server.log.match?(pattern) }
  end

  # Workers that have booted: until then other limits apply.
  def await_ready(server, count)
    expect_log(server, /^Fastrack is ready/)
    server.await_workers(count)
  end

  def frozen(pid)
    Process.kill(:STOP, pid)
    eventually { ProcessTable.entry(pid).state == "T" }
  end

  # Waits until others have replaced these workers.
  def await_others(server, before)
    server.await_workers(before.size) { |found| (found & before).empty? }
  end

  describe "for callbacks after a response" do
    let(:app) { <<~'RUBY' }
      run lambda { |env|
        text = ->(body) { [200, { "content-type" => "text/plain" }, [body]] }
        callback = env["PATH_INFO"].delete_prefix("/")
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
      eventually { server.lines_of("called").size > called }
      response
    end

    (HttpApps.rack3? ? %w[after_reply response_finished] : %w[after_reply]).each do |callback|
      it "is RequestTimeout: rack.#{callback} that sleeps for ever costs its worker, which is replaced" do
        server = start(ru: app, options: { MaxWorkers: 2, RequestTimeout: 0.5 })
        before = server.await_workers(2)
        2.times { expect(hang(server, "/#{callback}").status).to eq(200) }
        await_others(server, before)
        expect(server.get.status).to eq(200)
        expect_log(server, %r{^fastrack: callbacks of GET /#{callback} have taken [01]\.\d s: this worker ends \(worker #{before.first}\)$})
        expect_log(server, %r{^    #{server.dir}/config.ru:7:in .*sleep'$})
        expect_log(server, %r{^fastrack: worker \d \(pid #{before.last}\) exited with status 124 \(request timeout\) while serving callbacks of GET /#{callback} for \d\.\d s$})
      end
    end

    it "does not end the worker's other connections" do
      server = start(ru: app, options: { MaxWorkers: 1, RequestTimeout: 0.5 })
      HttpPeer.open(server) do |idle|
        idle.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        idle.read_until(/\r\n\r\n\d+/)
        HttpPeer.open(server) do |hanging|
          hanging.write("GET /after_reply HTTP/1.1\r\nHost: h\r\n\r\n")
          hanging.read_until(/\r\n\r\n\d+/)
          [idle, hanging].each do |peer|
            peer.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            expect(peer.read_until(/\r\n\r\n\d+HTTP.*\r\n\r\n\d+/m).scan(/HTTP\S+ 200/).size).to eq(2)
          end
        end
      end
    end

    it "can be set by the callback itself" do
      server = start(ru: app, options: { MaxWorkers: 1, RequestTimeout: 30 })
      before = server.await_workers(1)
      hang(server, "/after_reply?0.2")
      await_others(server, before)
    end

    it "ends after HUP even with a RequestTimeout of 0: by then GracefulTimeout counts" do
      server = start(ru: app, options: { MaxWorkers: 1, RequestTimeout: 0, GracefulTimeout: 0.1 })
      before = server.await_workers(1)
      hang(server)
      server.signal(:HUP)
      expect_log(server, %r{^fastrack: worker 0 \(pid #{before.first}\) takes too long:\n  the main thread:\n    #{server.dir}/config.ru:7:in .*sleep'$})
      await_others(server, before)
      expect_log(server, %r{^fastrack: worker 0 \(pid #{before.first}\) has not finished within 0.1 s: killing it; it is serving callbacks of GET /after_reply for \d\.\d s$})
    end
  end

  describe "to boot" do
    let(:config) { 'after_fork { (File.write("stuck", "#{Process.pid}\n", mode: "a"); sleep) if File.exist?("hang") }' }

    def serve(**options)
      start(ru: Rackups::PID, options: { MaxWorkers: 2, **options }, config: config)
    end

    def hang_on_hup(server)
      server.write("hang", "")
      server.signal(:HUP)
      eventually { server.lines_of("stuck").last&.to_i }
    end

    it "is WorkerBootTimeout: an after_fork that hangs is named in the log, and its worker replaced" do
      server = serve(WorkerBootTimeout: 0.2)
      before = server.await_workers(2)
      stuck = hang_on_hup(server)
      expect_log(server, %r{^fastrack: worker \d \(pid #{stuck}\) takes too long:\n  the main thread:\n    #{server.dir}/fastrack.rb:1:in .*sleep'$})
      expect_log(server, /^fastrack: worker \d \(pid #{stuck}\) has not been ready within 0.2 s \(WorkerBootTimeout\): killing it$/)
      File.unlink(File.join(server.dir, "hang"))
      server.await_workers(2) { |found| (found & [*before, stuck]).empty? }
      expect(server.get.status).to eq(200)
    end

    it "does not keep a later HUP from its turn" do
      server = serve
      before = server.await_workers(2)
      stuck = hang_on_hup(server)
      File.unlink(File.join(server.dir, "hang"))
      server.signal(:HUP)
      server.await_workers(2) { |found| (found & [*before, stuck]).empty? }
    end

    it "is bounded where native code heeds no signal, too" do
      server = start(ru: Rackups::PID, options: { MaxWorkers: 1 }, config: <<~RUBY)
        after_fork { Process.kill(:STOP, Process.pid) if File.exist?("hang") }
      RUBY
      before = server.await_workers(1)
      server.write("hang", "")
      server.signal(:HUP)
      stuck = eventually { (server.workers - before).find { |pid| ProcessTable.entry(pid)&.state == "T" } }
      File.unlink(File.join(server.dir, "hang"))
      server.signal(:HUP)
      server.await_workers(1) { |found| (found & [*before, stuck]).empty? }
      expect(server.get.status).to eq(200)
    end
  end

  # Hooks of the master, which waits for them.
  describe "from a hook of the master" do
    def hanging(hook, limit)
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 2, ErrRespawnInterval: 0, WorkerBootTimeout: limit }, config: <<~RUBY)
        #{hook} do
          (File.write("hangs", ""); IO.pipe.first.read) if File.exist?("hang")
        end
      RUBY
      before = await_ready(server, 2)
      server.write("hang", "")
      server.signal(:KILL, to: before.first)
      eventually { File.exist?(File.join(server.dir, "hangs")) }
      server
    end

    { "before_fork" => "cannot spawn worker", "after_worker_exit" => "after_worker_exit failed" }.each do |hook, failure|
      it "is WorkerBootTimeout: #{hook} that hangs is named in the log, and the master goes on" do
        server = hanging(hook, 1)
        expect(server.get.status).to eq(200)
        expect_log(server, /^fastrack: #{failure}.*: it is not done within 1 s .*\n(?:.*\n)*?.*fastrack\.rb:2/)
        File.unlink(File.join(server.dir, "hang"))
        server.await_workers(2)
      end

      (hook == "before_fork" ? %w[TERM QUIT INT] : %w[TERM]).each do |name|
        it "is over when the server is to end: #{hook} that hangs does not keep #{name} from it" do
          server = hanging(hook, 0)
          server.signal(name)
          expect(server.wait.exitstatus).to eq(0)
          expect(server.log).to match(/^fastrack: #{failure}.*: #{name} has come meanwhile .*/)
        end
      end
    end

    # The hook begins where there is a file `wait`, and goes on while it is there.
    def waiting(hook)
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 2, ErrRespawnInterval: 0 }, config: <<~RUBY)
        #{hook} do
          waits = File.exist?("wait")
          File.write("begun", "b", mode: "a") if waits
          sleep 0.01 while File.exist?("wait")
          File.write("done", "d", mode: "a") if waits
        end
      RUBY
      before = await_ready(server, 2)
      server.write("wait", "")
      server.signal(:KILL, to: before.first)
      eventually { File.exist?(File.join(server.dir, "begun")) }
      server
    end

    def go_on(server)
      File.unlink(File.join(server.dir, "wait"))
    end

    # @return [Boolean] whether each that has begun was done
    def done?(server)
      %w[begun done].map { |name| File.size(File.join(server.dir, name)) }.uniq.one?
    end

    it "is not over for a HUP, which is no end" do
      server = waiting("before_fork")
      2.times { server.signal(:HUP) }
      go_on(server)
      server.await_workers(2)
      expect(server.log).not_to include("has come meanwhile")
      expect(done?(server)).to be(true)
    end

    it "is a moment more for an after_worker_exit when the server is to end" do
      server = waiting("after_worker_exit")
      server.signal(:TERM)
      go_on(server)
      expect(server.wait.exitstatus).to eq(0)
      expect(server.log).not_to include("after_worker_exit failed")
      expect(done?(server)).to be(true)
    end

    it "does not keep a server that drains longer than DrainDelay" do
      server = hanging("drain_delay 1; before_fork", 0)
      server.signal(:TERM)
      expect(server.wait.exitstatus).to eq(0)
    end
  end

  describe "an after_fork that always fails" do
    it "ends a server that has never served, with one line and status 1" do
      server = Server.fail_to_start(ru: Rackups::PID, options: { MaxWorkers: 2, ErrRespawnInterval: 0.01 }, config: <<~RUBY)
        after_fork { File.write("tries", ".", mode: "a"); exit 3 }
      RUBY
      expect(server.status.exitstatus).to eq(1)
      expect(server.lines_of("tries").first.size).to be_between(20, 22)
      expect(server.log).to match(/^fastrack: the last 2\d workers failed to boot, and none ever was ready: the server ends\n\z/)
      expect(server.processes).to be_empty
    end

    it "ends one that is a new master (USR2), and the old one carries on" do
      server = start(ru: Rackups::PID, options: { MaxWorkers: 1, ErrRespawnInterval: 0.01 }, config: "")
      server.write("fastrack.rb", "after_fork { exit 3 }")
      server.signal(:USR2)
      expect_log(server, /^fastrack: the new master \(pid \d+\) exited with status 1[^\n]*; this one carries on$/)
      expect(server.get.status).to eq(200)
    end

    it "leaves one that has served at work with the workers that it has, and is logged" do
      server = start(ru: Rackups::PID, options: { MaxWorkers: 2, ErrRespawnInterval: 0.01 }, config: <<~RUBY)
        after_fork { exit 3 if File.exist?("broken") }
      RUBY
      before = await_ready(server, 2)
      server.write("broken", "")
      server.signal(:HUP)
      expect_log(server, /^fastrack: the last 30 workers failed to boot: 2 of 2 serve; trying again every 0.01 s$/)
      expect(server.get.status).to eq(200)
      File.unlink(File.join(server.dir, "broken"))
      await_others(server, before)
    end
  end

  describe "while it is stopped (SIGSTOP)" do
    it "is WorkerTimeout, though it is idle" do
      server = start(ru: Rackups::PID, options: { MaxWorkers: 2, WorkerTimeout: 0.5 })
      before = await_ready(server, 2)
      before.each { |pid| frozen(pid) }
      await_others(server, before)
      expect(server.get.status).to eq(200)
      expect(server.log.scan(/^fastrack: worker \d \(pid \d+\) has been stopped by a signal or a debugger for 0.5 s \(WorkerTimeout\): killing it$/).size).to eq(2)
    end

    it "does not count where it goes on now and then" do
      server = start(ru: Rackups::PID, options: { MaxWorkers: 1, WorkerTimeout: 0.5 })
      worker = await_ready(server, 1).first
      # Longer than its time and the master's looks in all.
      12.times do
        frozen(worker)
        sleep 0.1
        server.signal(:CONT, to: worker)
        server.get
      end
      expect(server.workers).to eq([worker])
    end

    it "is GracefulTimeout after HUP" do
      server = start(ru: Rackups::PID, options: { MaxWorkers: 1, GracefulTimeout: 0.1 })
      before = await_ready(server, 1)
      frozen(before.first)
      server.signal(:HUP)
      await_others(server, before)
      expect_log(server, /^fastrack: worker 0 \(pid #{before.first}\) has not finished within 0.1 s: killing it; it is serving no request$/)
    end
  end

  describe "to stop" do
    let(:app) { <<~'RUBY' }
      run lambda { |env|
        if env["PATH_INFO"] == "/wait"
          File.write("waiting", Process.pid.to_s)
          sleep 0.01 until File.exist?("go")
        end
        [200, {}, [Process.pid.to_s]]
      }
    RUBY

    def waiting_request(server)
      client = Thread.new { HttpPeer.exchange(server, "GET /wait HTTP/1.0\r\n\r\n").first }
      eventually { server.lines_of("waiting").any? }
      client
    end

    it "is GracefulTimeout on HUP, for a request without a limit" do
      server = start(ru: app, options: { MaxWorkers: 1, GracefulTimeout: 0.1, RequestTimeout: 0 })
      before = server.await_workers(1)
      client = waiting_request(server)
      server.signal(:HUP)
      await_others(server, before)
      expect_log(server, %r{^fastrack: worker 0 \(pid #{before.first}\) has not finished within 0.1 s: killing it; it is serving GET /wait for \d\.\d s$})
      expect(client.value).to eq("")
    end

    it "is that of the request where that is longer, so that HUP loses none" do
      server = start(ru: app, options: { MaxWorkers: 1, GracefulTimeout: 0.1, RequestTimeout: 30 })
      before = server.await_workers(1)
      client = waiting_request(server)
      server.signal(:HUP)
      server.await_workers(2)
      # Longer than GracefulTimeout, and what the master grants beyond.
      sleep 1.2
      server.write("go", "")
      expect(client.value).to end_with(before.first.to_s)
      await_others(server, before)
    end
  end

  describe "between two requests" do
    let(:app) { <<~'RUBY' }
      require "fiddle"
      # sigwait(3) for no signal at all: native code that never returns and keeps Ruby's lock.
      SIGWAIT = Fiddle::Function.new(Fiddle.dlopen(nil)["sigwait"], [Fiddle::TYPE_VOIDP] * 2, Fiddle::TYPE_INT, need_gvl: true)
      run lambda { |env|
        Thread.new { sleep 0.1; File.write("stuck", ""); SIGWAIT.call("\0" * 128, "\0" * 8) } if env["PATH_INFO"] == "/hang"
        [200, {}, [Process.pid.to_s]]
      }
    RUBY

    it "is WorkerTimeout: a thread that keeps Ruby's lock for ever costs its worker, and its clients are served by another" do
      server = start(ru: app, options: { MaxWorkers: 1, WorkerTimeout: 1 })
      HttpPeer.open(server) do |kept|
        kept.write("GET /hang HTTP/1.1\r\nHost: h\r\n\r\n")
        first = kept.read_until(/\r\n\r\n\d+\z/)[/\d+\z/]
        eventually { File.exist?(File.join(server.dir, "stuck")) }
        kept.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        expect(kept.read_until(/\r\n\r\n\d+HTTP.*\r\n\r\n\d+\z/m)[/\d+\z/]).not_to eq(first)
        expect_log(server, /^fastrack: stuck between two requests for 1\.\d s: this worker ends \(worker #{first}\)$/)
        # It is not the main thread, which is the one that shows its frames elsewhere.
        expect_log(server, /^  in native code:\n(.*\n)*?.*\bsigwait\b/) unless Portable::ON
      end
    end
  end

  it "is GracefulTimeout for what runs at the end of a worker that was told to stop by somebody else" do
    config = "Fastrack::Worker.prepend(Module.new { private def serve(*) = super.then { sleep } })"
    server = start(ru: Rackups::PID, options: { MaxWorkers: 1, GracefulTimeout: 0.1 }, config: config)
    before = await_ready(server, 1)
    server.signal(:TERM, to: before.first)
    await_others(server, before)
    expect_log(server, %r{^fastrack: worker 0 \(pid #{before.first}\) takes too long:\n  the main thread:\n    #{server.dir}/fastrack.rb:1:in .*sleep'$})
    expect_log(server, /^fastrack: worker 0 \(pid #{before.first}\) has not finished within 0.1 s: killing it; it is serving no request$/)
    # The others must not hang.
    server.signal(:INT)
  end

  describe "after a time in which the whole machine stood still" do
    it "is up to the worker for a moment, so that its client gets a 504" do
      server = start(ru: 'run ->(_) { File.write("waiting", ""); sleep }', options: { MaxWorkers: 1, RequestTimeout: 0.5 })
      server.await_workers(1)
      client = Thread.new { server.get("/") }
      eventually { File.exist?(File.join(server.dir, "waiting")) }
      all = [server.master, *server.workers]
      all.each { |pid| frozen(pid) }
      # Longer than RequestTimeout and what the master grants beyond.
      sleep 1.8
      server.signal(:CONT, to: server.master)
      # The master is the first to run.
      eventually { ProcessTable.entry(server.master).state == "S" }
      server.signal(:CONT, to: all.last)
      expect(client.value.status).to eq(504)
      expect(server.log).not_to include("killing it")
    end
  end
end
