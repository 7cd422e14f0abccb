# frozen_string_literal: true

# Deploys add up over months: what each leaves behind counts.
RSpec.describe "Many deploys", once: "processes and descriptors" do
  include ReexecHelpers

  rounds = 6
  memory = { alone: "memory of processes that have come to rest" }

  # Kilobytes of memory that a process has written to (proc(5), smaps_rollup), once they have come to rest.
  def memory(pid) = eventually(20, "no end of changes") { (before = kilobytes(pid)) && sleep(0.2) && kilobytes(pid) == before && before }

  def kilobytes(pid)
    File.read("/proc/#{pid}/smaps_rollup").scan(/^(Anonymous|Pss_Anon):\s+(\d+) kB/).to_h { |name, number| [name, number.to_i] }
  end

  # What a master has that may pile up, without files that are open for a moment, and numbers that each deploy changes.
  def measures(pid)
    kept = ProcessTable.descriptors(pid).values.compact.grep_v(%r{\A/(proc|sys)/|\.(rb|so)\z})
    { descriptors: kept.map { |file| file.gsub(/\d+/, "N") }.tally, variables: File.binread("/proc/#{pid}/environ").count("\0"),
      arguments: ProcessTable.title(pid), signals: File.read("/proc/#{pid}/status")[/^Sig(?:Blk|Ign):.*/] }
  end

  # Deploys a version, and waits for the old master's end.
  def deploy(server, version)
    old = server.master
    ended = server.log.scan("the old master has ended").size
    server.write("config.ru", app(version))
    usr2(server, to: pid_in(server))
    eventually(20, -> { server.log }) { server.master != old && server.log.include?("Fastrack is ready Workers:2 Pid:#{server.master}") }
    # Which reaps the first one.
    eventually { server.ended? && !ProcessTable.alive?(old) }
    # Until the new one knows of that, it refuses another USR2.
    server.await_log("the old master has ended", ended + 1)
    eventually { server.workers.size == 2 && pid_in(server) == server.master }
  end

  # Under the load of clients that make no pause, beside those that do; gives what the latter got.
  def under_load(server, kept:, &block)
    bodies = nil
    load = ClientLoop.run(server, paths: ["/"] * 8, kept: kept, pause: 0) { bodies = unnoticed(server, kept: kept, &block) }
    expect(load.failures).to eq([])
    bodies
  end

  { "new connections" => false, "kept connections" => true }.each do |what, kept|
    it "C1 #{rounds} by USR2 lose no request on #{what}, leave no process, and pile up no descriptors, memory, variables", **memory do
      server = start(options: { Pid: "app.pid" })
      before = measures(server.master).merge(memory: memory(server.master))
      first = nil
      bodies = under_load(server, kept: kept) do |clients|
        rounds.times do |index|
          deploy(server, "v#{index + 2}")
          first ||= measures(server.master).merge(memory: memory(server.master))
          clients.await_answers
        end
      end
      last = measures(server.master).merge(memory: memory(server.master))
      expect(bodies.map { |body| body.split.first }.uniq.size).to eq(rounds + 1)
      await_processes(server, 3)
      expect(server.processes).to contain_exactly(server.master, *server.molds, *server.workers)
      expect(last.except(:memory, :descriptors)).to eq(first.except(:memory, :descriptors))
      # The one to the old master is closed a moment after that one's end.
      eventually(20, -> { measures(server.master) }) { measures(server.master)[:descriptors].values.sum <= before[:descriptors].values.sum }
      expect(last[:memory]["Anonymous"]).to be < before[:memory]["Anonymous"] * 1.02
      expect(last[:memory]["Pss_Anon"]).to be < first[:memory]["Pss_Anon"] * 1.1
    end
  end

  it "C1 #{rounds} by HUP lose no request, and pile up neither descriptors nor processes" do
    server = start(config: "after_fork { }")
    before = measures(server.pid)
    unnoticed(server) do
      rounds.times do |index|
        server.signal(:HUP)
        server.await_ready(index + 2)
      end
    end
    await_processes(server, 3)
    eventually(20, -> { measures(server.pid) }) { measures(server.pid) == before }
  end
end
