# frozen_string_literal: true

# As macOS, which gives a process no orphans of others: workers are children of the process that forks them, which tells of their ends.
RSpec.describe "A system without subreapers", once: "processes" do
  def serving(**options)
    Server.ready(ru: Rackups::PID, fastrack: true, options: { MaxWorkers: 2, ErrRespawnInterval: 0.1, **options },
                 env: { RUBYOPT: "-r#{File.expand_path("../support/no_subreaper", __dir__)}" })
  end

  def workers(server) = server.molds.flat_map { |mold| ProcessTable.children(mold) }

  it "has workers that are generation 0's, and the log and the service know how they end" do
    server = serving
    before = workers(server)
    expect([before.size, server.workers]).to eq([2, []])
    server.signal(:KILL, to: before.first)
    server.await_log(/^fastrack: worker 0 \(pid #{before.first}\) was killed by SIGKILL$/)
    eventually { workers(server).size == 2 && !workers(server).include?(before.first) }
    expect(workers(server)).to include(server.get.body.to_i)
  end

  it "has a HUP replace them, and leaves nothing behind" do
    server = serving
    before = [*server.molds, *workers(server)]
    server.signal(:HUP)
    eventually { workers(server).size == 2 && ([*server.molds, *workers(server)] & before).empty? && before.none? { |pid| ProcessTable.alive?(pid) } }
    expect(workers(server)).to include(server.get.body.to_i)
    expect([server.stop.exitstatus, server.processes]).to eq([0, []])
  end

  it "says why nothing happens at a refork" do
    server = serving
    server.get
    server.signal(:URG)
    server.await_log("refork: nothing happens: this system gives a process no orphans (PR_SET_CHILD_SUBREAPER)")
  end
end
