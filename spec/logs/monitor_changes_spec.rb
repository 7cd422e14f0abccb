# frozen_string_literal: true

require_relative "../../lib/fastrack/master/monitor_thread"

# That the monitor is there whatever becomes of the server, and that it and its clients do the server no harm.
RSpec.describe "The monitor", linux: "a thread with descriptors of its own", once: "a thread without Ruby" do
  include MonitorHelpers

  describe "when the server changes" do
    # Asks all the time. The pids of the masters that have answered.
    def answered
      pids = []
      done = false
      asking = Thread.new { pids << monitor.status["pid"] until done }
      answer = -> { pids.size.then { |before| eventually { pids.size > before + 1 || !asking.alive? } } }
      answer.call
      yield
      answer.call
      done = true
      asking.value
      pids
    ensure
      done = true
    end

    it "answers without a gap, first the old master's and then the new one's (USR2)" do
      server = serving
      old = server.master
      pids = answered do
        server.signal(:USR2)
        monitor.await { |status| status["pid"] != old && status["phase"] == "serving" }
        Eventually.eventually { server.ended? }
      end
      expect([pids.uniq, File.read(@pid_file).to_i]).to eq([[old, server.master], server.master])
    end

    it "answers on where a new master fails, and again where one fails later" do
      server = serving(options: { AutoQuit: false })
      old = server.master
      pids = answered do
        server.write("config.ru", "raise 'broken'")
        server.signal(:USR2)
        server.await_log("this one carries on")
      end
      expect(pids.uniq).to eq([old])
      server.write("config.ru", MonitorHelpers::APP)
      server.signal(:USR2)
      other = monitor.await { |status| status["pid"] != old && status["phase"] == "serving" }["pid"]
      Process.kill(:KILL, other)
      expect(monitor.await { |status| status["pid"] == old }).to include("phase" => "serving")
    end

    it "is somewhere else from a HUP on, or nowhere, and again where somebody has removed its socket" do
      server = serving(config: "")
      File.unlink(monitor.path)
      server.reload
      expect(monitor.await { |status| status["generation"] == 2 && status["phase"] == "serving" }).to include("pid" => server.master)
      server.await_ready(2).reload(%(control_path "other.control"\n))
      moved = MonitorClient.new(server.file("other.control"))
      expect(moved.await { |status| status["generation"] == 3 && status["phase"] == "serving" }).to include("pid" => server.master, "workers_wanted" => 2)
      expect(File.exist?(monitor.path)).to be(false)
      server.await_ready(3).reload(%(control_path "none"\n))
      server.await_ready(4)
      expect([File.exist?(moved.path), server.get.status]).to eq([false, 200])
    end

    it "leaves nothing behind where the master is killed, and a new start takes the socket's file over" do
      server = serving
      server.signal(:KILL)
      Eventually.eventually { server.ended? && server.processes.empty? }
      expect { monitor.status }.to raise_error(Errno::ECONNREFUSED)
      again = Server.start(ru: MonitorHelpers::APP, options: { MaxWorkers: 1, Pid: @pid_file })
      expect(monitor.await { |status| status["phase"] == "serving" }).to include("pid" => again.master)
      again.stop
    end
  end

  it "is no end of the master by an exception of its own" do
    failing = Class.new { def method_missing(name, *) = raise(FrozenError, "no #{name}") }.new
    allow(Fastrack::Log).to receive(:line)
    thread = Fastrack::MonitorThread.new(nil, [], failing)
    3.times { thread.publish(1, true, nil, [], nil) }
    [thread.listen, thread.exited(nil, nil), thread.close]
    expect(Fastrack::Log).to have_received(:line).with(/\Athe monitor fails: .*\((?:NoMethodError|FrozenError)\)\z/, :error).once
  end

  it "gives no descriptor of its own to a worker, nor to the rest of the master" do
    server = serving
    sockets = ->(pid) { ProcessTable.descriptors(pid).values.compact.grep(/socket:/) }
    alone = Server.ready(ru: MonitorHelpers::APP, options: { MaxWorkers: 2 })
    # But for the one that gives the monitor its orders.
    Eventually.eventually { sockets.call(server.master).size == sockets.call(alone.master).size + 1 }
    # Those that it has accepted, and where it listens. It keeps clients for ten seconds.
    inodes = eventually(60) do
      held = Array.new(3) { monitor.connect.tap { |socket| socket.write("GET /status.json HTTP/1.1\r\n") } }
      server.renew
      found = File.readlines("/proc/net/unix").select { |line| line.end_with?("#{monitor.path}\n") || line.include?(".control.") }.map { |line| line.split[6] } - ["0"]
      found if found.size >= 4 && held.all? { |socket| socket.read_nonblock(1, exception: false) == :wait_readable }
    end
    open = [server.master, *server.workers].flat_map { |pid| ProcessTable.descriptors(pid).values }
    expect(open.compact.grep(/socket:\[(#{inodes.join("|")})\]/)).to eq([])
  end

  it "lets a thousand clients, slow ones too, neither slow the server down nor keep others out" do
    server = serving
    rss = -> { File.read("/proc/#{server.master}/statm").split[1].to_i * Etc.sysconf(Etc::SC_PAGESIZE) }
    before = rss.call
    held = []
    1000.times do |number|
      socket = Socket.new(:UNIX, :STREAM)
      # Its backlog may be full.
      Eventually.eventually { socket.connect_nonblock(Addrinfo.unix(monitor.path), exception: false) != :wait_writable }
      socket.write_nonblock(["", "GET /metrics", "GET /status.json HTTP/1.1\r\nHost: h\r\n\r\n"][number % 3])
      held << socket
      held.shift.close if held.size > 200
      expect(server.get.status).to eq(200) if (number % 100).zero?
    end
    expect([ready["workers_ready"], server.get.status]).to eq([2, 200])
    expect(rss.call - before).to be < 32 * 1024 * 1024
  ensure
    held&.each(&:close)
  end
end
