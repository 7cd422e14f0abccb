# frozen_string_literal: true

RSpec.describe "MaxWorkers=auto", once: "processes and figures of the kernel" do
  # What this machine allows, asked without the code in question.
  one_cpu = ["taskset", "-c", `taskset -pc #{Process.pid} 2>/dev/null`[/: (\d+)/, 1].to_s]

  # Has so many clients ask while the block runs.
  def under_load(server, clients)
    over = false
    threads = Array.new(clients) { Thread.new { server.get.status until over } }
    yield
  ensure
    over = true
    threads.each(&:join)
  end

  def lines(server) = server.log.lines(chomp: true).grep(/workers auto: changing|memory: .* changing/)

  it "adds workers while the app waits and all are busy, and counts once what they share with a mold", alone: "clients that keep all workers busy", if: one_cpu.last != "" do
    app = '$shared = "x" * (100 << 20); run ->(_env) { $kept ||= "x" * (50 << 20); sleep 0.05; [200, {}, []] }'
    server = Server.start(ru: app, options: { MaxWorkers: "auto", MaxRequestPerChild: 0, MaxMemory: "512M" }, wrapper: one_cpu)
    under_load(server, 6) do
      eventually(60) { server.workers.size >= 2 } && server.signal(:URG)
      # The mold is the sixth.
      server.await_log("refork: generation 2 ") && eventually(90) { server.workers.size >= 6 }
    end
    expect(lines(server).first).to match(/\Afastrack: workers auto: changing from 1 to 2 \(all busy in \d+ of 20 looks; computing \d+ % of their requests' time on 1 CPUs: \d+; limit .*, shared 1\d\d MB, .*\)\z/)
    expect([lines(server).last, server.log]).to match([/ each worker \d\.\d MB: \d+\)\z/, /\A(?!.*(?:SIGKILL|recycling))/m])
  end

  it "adds a quarter at a time, from eight on, while that many clients wait", alone: "clients that keep all workers busy", if: one_cpu.last != "" do
    server = Server.start(ru: "run ->(_env) { sleep 0.5; [200, {}, []] }", options: { MaxWorkers: "auto" }, wrapper: one_cpu)
    server.await_workers(1)
    (2..8).each do |size|
      server.signal(:TTIN)
      server.await_log("TTIN: changing to #{size} workers")
    end
    server.await_workers(8)
    under_load(server, 30) { eventually(60) { lines(server).any? } }
    expect(lines(server).first).to include("changing from 8 to 10 (")
  end

  it "adds none that does not fit into the cgroup, and takes one away when they have grown", alone: "clients that keep all workers busy", if: one_cpu.last != "" do
    group = MemoryCgroup.make(440 << 20) or skip("no memory cgroup can be made here")
    # Each worker comes to take 100 MB, with its first request: a fresh one would do so, too.
    app = 'run ->(_env) { $kept ||= "x" * (99 << 20); sleep 0.02; [200, {}, []] }'
    server = Server.start(ru: app, options: { MaxWorkers: "auto", MaxRequestPerChild: 0 }, wrapper: group.wrapper + one_cpu)
    server.await_workers(1)
    under_load(server, 6) { eventually(60) { server.workers.size == 2 } }
    expect(lines(server).first).to match(/changing from 1 to 2 \(.* limit 418 MB \(95 % of the cgroup's 440 MB\), .* each worker \d+ MB: 3\)/)
    # Two more than it has by now, at least: more than fit.
    [3, 4].each do |size|
      next if server.workers.size >= size

      server.signal(:TTIN, to: server.master)
      eventually { server.workers.size >= size }
    end
    under_load(server, 6) { eventually(60) { lines(server).grep(/\Afastrack: memory: .* changing to \d workers/).any? } }
    expect(server.log).not_to include("SIGKILL")
  ensure
    server&.stop
    eventually { group.processes.empty? } if group
    group&.remove
  end

  it "takes away what was not needed for AutoIdleTime, one at a time, down to two", if: one_cpu.last != "" do
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: "auto", AutoIdleTime: "0.5" }, wrapper: one_cpu)
    server.await_workers(1)
    (2..4).each do |size|
      server.signal(:TTIN)
      server.await_log("TTIN: changing to #{size} workers")
    end
    eventually { lines(server).size == 2 }
    expect(lines(server)).to match([/changing from 4 to 3 \(at most \d busy in [01] s, \d+ of \d+ requests? in the queue for less than 10 ms\)/, /from 3 to 2/])
    server.await_workers(2)
    expect(server.get.status).to eq(200)
  end

  it "keeps what it has learned on HUP", if: one_cpu.last != "" do
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: "auto" }, wrapper: one_cpu)
    server.await_workers(1)
    server.signal(:TTIN)
    server.renew(server.await_workers(2))
  end

  it "begins with what the CPUs allow where a HUP brings it in place of a number", if: one_cpu.last != "" do
    server = Server.start(ru: Rackups::PID, config: "max_workers 3\n", wrapper: one_cpu)
    old = server.await_workers(3)
    server.reload('max_workers "auto"')
    server.await_workers(1) { |found| (found & old).empty? }
  end
end
