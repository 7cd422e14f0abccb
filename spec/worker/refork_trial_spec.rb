# frozen_string_literal: true

require "support/refork_helpers"

RSpec.describe "The first worker of a mold", linux: "a subreaper (prctl(2))", once: "the master judges it; forking itself is in refork_spec" do
  include ReforkHelpers

  # A server with that configuration, in which a refork fails and nobody notices.
  #
  # @return [String] what it logs
  def failing(config, **options)
    server = serving(config: config, **options)
    warmed(server)
    loop = ClientLoop.run(server, paths: ["/keep"] * 3, kept: true) { refork(server).then { |output, status| expect(status).to eq(1), output } }
    settled(server, [], molds: 0)
    expect(loop.failures).to eq([])
    server.log[/refork: given up: (.*); workers are forked as before$/, 1]
  end

  it "serves for a while before the others are forked" do
    server, mold = reforked
    forks = server.lines_of("notes").grep(/\Aafter/).last(3).map { |line| line.split.last.to_i }
    expect(forks[1] - forks[0]).to be >= 10
    expect(forks).to eq(forks.sort)
    status = MonitorClient.new(server.file("control")).await("restarts") { |found| found["restarts"]["refork"] == 3 }
    requests = requests_of(server, mold)
    expect(status["mold"]).to include("pid" => mold, "generation" => 1, "requests" => requests, "pss" => be > 1_000_000)
    output, = Open3.capture2e(RbConfig.ruby, Server::COMMAND, "status", "--control", "control", chdir: server.dir)
    expect(output).to match(/^mold +#{mold} generation 1 after #{requests} requests +\d+ MB +\d+ MB$/)
  end

  killed = { "fails in a hook" => ['raise "no"', "exited with status 1"], "is killed" => ["Process.kill(:KILL, Process.pid)", "was killed by SIGKILL"],
             "hangs in a hook" => ["sleep", "was killed by the master (WorkerBootTimeout)", { WorkerBootTimeout: 4 }],
             "has no less memory of its own" => ['$own = "x" * (20 << 20)', "has \\d+ MB of its own after \\d+ requests?; worker"] }
  killed.each do |what, (fault, reason, options)|
    it "is the last one if it #{what}" do
      said = failing("after_fork { $kept.any? && begin; #{fault}; end }", **options.to_h)
      expect(said).to match(/\Aworker \d \(pid \d+\), the mold's first, #{reason.tr("()", ".")}/)
    end
  end

  it "is not there when the process between it and the mold is killed" do
    config = <<~'RUBY'
      # Generation 0, the process between it and a worker, that worker, and the process between it and its workers.
      $depth = 0
      wrapper = Module.new { def _fork = super.tap { |pid| pid.zero? ? $depth += 1 : ($depth == 4 && Process.kill(:KILL, Process.pid)) } }
      Process.singleton_class.prepend(wrapper)
    RUBY
    expect(failing(config)).to match(/\Athe mold \(pid \d+\) was killed by the master \(it has forked no worker\)/)
  end

  # A server in the middle of a refork: the mold's first worker is in a hook that lasts until it is told to end.
  #
  # @return [Array(Server, Integer, Integer)] and the pids of the mold and that worker
  def halfway
    server = serving(config: <<~'RUBY')
      after_fork { File.write("first", Process.pid.to_s) && (sleep 0.01 until File.exist?("go")) if $kept.to_a.any? && !File.exist?("go") }
    RUBY
    mold = warmed(server)
    server.signal(:URG)
    [server, mold, eventually { server.lines_of("first").first&.to_i }]
  end

  it "is no reason for new code to fail, though it was told to stop and had to be killed" do
    server = serving(config: "after_fork { File.write('first', '') && Process.kill(:STOP, Process.pid) if $kept.to_a.any? }", GracefulTimeout: 4)
    mold = warmed(server)
    server.signal(:URG)
    server.await_file("first")
    server.signal(:KILL, to: mold)
    server.await_log("was killed by the master (GracefulTimeout)")
    server.signal(:HUP)
    server.await_log(/^fastrack: HUP: (?:the new code|replacing)/)
    server.await_ready(2)
  end

  # What is sent to which process, and how many molds and workers there are then.
  { "the mold is killed" => [:KILL, 1, 0, 3], "it is killed" => [:KILL, 2, 0, 3], "the server gets HUP" => [:HUP, 0, 0, 3],
    "there is a new master" => [:USR2, 0, 0, 3], "there is one worker more" => [:TTIN, 0, 1, 4], "there is one less" => [:TTOU, 0, 1, 2] }
    .each do |what, (signal, process, molds, workers)|
      it "loses no request when #{what} while it boots" do
        server, mold, first = halfway
        loop = ClientLoop.run(server, kept: true) do
          server.signal(signal, to: [server.pid, mold, first][process])
          server.write("go", "")
          eventually(60) do
            found = roles(server)
            found.transform_values(&:size).values_at("mold", "worker") == [molds.nonzero?, workers] && server.refused?.! &&
              remembered(server).uniq == [molds.zero? ? nil : mold.to_s] && [mold, first].none? { |pid| molds.zero? && ProcessTable.alive?(pid) }
          end
        end
        expect(loop.failures).to eq([])
      end
    end

  %i[TERM KILL].each do |signal|
    it "leaves no process behind when the server gets #{signal} while it boots" do
      server, = halfway
      server.signal(signal)
      eventually(30) { server.ended? && server.processes.empty? }
    end
  end

  it "is told which threads of the app's it has not, nor has the mold" do
    server = serving
    server.get("/threads")
    refork(server)
    server.await_log(/^fastrack: refork: workers will not have 1 thread of the app, unless after_fork starts them: \S+:\d+ \(beat\)$/)
    # Ruby keeps the native threads for a while. Since 3.3 there is always one of its own.
    eventually(20) { Dir.children("/proc/#{roles(server)["mold"].first}/task").size <= (RUBY_VERSION >= "3.3" ? 2 : 1) }
  end
end
