# frozen_string_literal: true

require_relative "../../lib/fastrack/cli/status_table"
require_relative "../../lib/fastrack/configuration"
require_relative "../../lib/fastrack/memory/limit"
require_relative "../../lib/fastrack/memory/supervisor"
require "stringio"

# Docker gives root no CAP_SYS_PTRACE: the kernel tells it nothing of other users' processes but what they have in memory, and what is
# shared is in that of each.
RSpec.describe "The memory of workers that the master may not look at", if: Process.uid.zero? && RUBY_PLATFORM.include?("linux"),
                                                                        once: "the kernel says who may look, not Ruby" do
  # 100 MB that all have, and 20 MB more that a worker comes to have with its first request; /grow has it keep 200 MB.
  app = <<~'RUBY'
    $shared = Array.new(100) { "s" * (1 << 20) }
    run lambda { |env|
      sleep 0.1 if env["PATH_INFO"] == "/slow"
      $kept ||= "x" * (20 << 20)
      $more = "y" * (200 << 20) if env["PATH_INFO"] == "/grow"
      [200, {}, [Process.pid.to_s]]
    }
  RUBY

  # Newer kernels let who has one of the two others look as well.
  # The folder is the user's, in which root acts as that user.
  without = ["sh", "-c", 'chown nobody . && exec "$@"', "sh", *%w[setpriv --bounding-set=-sys_ptrace,-perfmon,-sys_admin]]

  define_method(:serve) do |**options|
    Server.ready(ru: app, fastrack: true, wrapper: without,
                 options: { User: "nobody", MaxWorkers: 3, MaxRequestPerChild: 0, ControlPath: "control", **options })
  end

  # In MB. This process may look.
  def proportional(*pids) = pids.flatten.sum { |pid| Fastrack::ProcessMemory.of(pid).pss } >> 20

  def shown(server) = MonitorClient.new(server.file("control")).status.values_at("master", "mold", "workers").flatten.compact.map { |one| one["pss"] }

  it "is what they have measured, in the status" do
    server = serve
    eventually { shown(server).none?(&:nil?) }
    # Before their first requests they have hardly anything of their own.
    expect(shown(server).sum >> 20).to be < 250
    eventually(60) { Array.new(6) { Thread.new { server.get("/slow") } }.each(&:join) && shown(server).drop(2).min > 40 << 20 }
    expect(shown(server).sum >> 20).to be_within(40).of(proportional(server.master, server.molds, server.workers))
    output, = Open3.capture2e(RbConfig.ruby, Server::COMMAND, "status", "--control", "control", chdir: server.dir)
    expect(output[/ memory (\d+) MB$/, 1].to_i).to be_within(40).of(proportional(server.master, server.molds, server.workers))
  end

  it "is unknown to `fastrack status` where nobody has measured it" do
    known, unknown = [{ "pss" => 5 << 20, "private" => 3 << 20 }, {}].map { |one| { "nr" => 0, "pid" => 1, "state" => "?", "rss" => 9 << 20, **one } }
    status = { "now" => 1.0, "uptime" => 1, "workers" => [known, unknown], "listeners" => [], "master" => known, "mold" => nil }
    lines = Fastrack::StatusTable.new(StringIO.new).text(status, status).lines
    expect([lines[1], *lines.last(2)]).to match([/  memory at least 10 MB$/, / 5 MB +3 MB$/, / \?$/])
  end

  it "is what MaxMemory limits" do
    server = serve(MaxWorkers: 5, MaxMemory: "330M")
    server.get("/grow")
    expect(eventually(60) { server.log[/^fastrack: memory: .*/] }).to match(/: (?:3[3-9]|4[0-4])\d MB in use, limit 330 MB \(MaxMemory\)/)
  end

  it "is what MaxMemoryPerChild limits" do
    server = serve(MaxMemoryPerChild: "150M")
    grown = server.get("/grow").body
    line = eventually { server.log[/^fastrack: worker .* of memory after .*/] }
    expect(line).to match(/\(pid #{grown}\) takes 2\d\d MB of memory after 1 request; .*: a new worker takes as much/)
  end

  it "is what a refork saves, and what its first worker is judged by" do
    server = serve
    loop = ClientLoop.run(server, kept: true) do
      eventually { shown(server).drop(2).then { |workers| workers.size == 3 && workers.compact.min.to_i > 40 << 20 } }
      server.signal(:URG)
      server.await_log(/refork: (?:generation|given up)/)
    end
    before, after = server.log[/refork: generation 2 .*/].scan(/(\d+) MB/).flatten.map(&:to_i)
    # What is shared was measured by each when others shared it as well: the figures are some MB off, and would be hundreds.
    expect([loop.failures, before, before - after]).to match([[], be < 300, be >= 10])
    eventually { shown(server).size == 5 }
    expect(shown(server).sum >> 20).to be_within(60).of(after)
  end
end

RSpec.describe "A system that does not tell what a process has for itself", once: "the kernel tells it, not Ruby" do
  it "is what the log names, for each option that has no effect" do
    config = "Fastrack::ProcessMemory.singleton_class.prepend(Module.new { def known? = false })\nmax_memory '1G'\nmax_memory_per_child '1G'\nrefork true\n"
    server = Server.ready(ru: Rackups::PID, config: config, options: { MaxWorkers: 2 })
    server.await_log(/max_memory_per_child.* has no effect/)
    expect(server.log.scan(/(\S+) has no effect: (.*)/)).to contain_exactly(*%w[max_memory max_memory_per_child refork].map { |word| [include(word), /smaps_rollup/] })
    server.signal(:URG)
    server.await_log(%r{refork: nothing happens: this system does not tell the memory of a process \(/proc/PID/smaps_rollup\)$})
  end

  it "tells all the same what a cgroup takes, so that its limit is watched" do
    limit = Fastrack::MemoryLimit::CgroupLimit.new(1 << 30, "/nowhere", "usage", "events")
    allow(Fastrack::ProcessMemory).to receive(:known?).and_return(false)
    allow(Fastrack::MemoryLimit::CgroupLimit).to receive(:find).and_return(limit, nil)
    watched = Array.new(2) do
      supervisor = Fastrack::MemorySupervisor.new([])
      supervisor.begin(Fastrack::Configuration.new({ user_supplied_options: [], MaxWorkers: 1 }))
      supervisor.due_at
    end
    expect(watched).to eq([0.0, nil])
  end
end
