# frozen_string_literal: true

require_relative "spec_helper"
require_relative "support/reexec_helpers"

# Deploys add up over months: what each leaves behind counts.
RSpec.describe "Many deploys" do
  include ReexecHelpers

  # Kilobytes of a process's memory that are its own or its share of others' (proc(5), smaps_rollup).
  def memory(pid)
    File.read("/proc/#{pid}/smaps_rollup")[/^Pss:\s+(\d+) kB/, 1].to_i
  end

  # What a master has that may pile up.
  def measures(pid)
    { descriptors: ProcessTable.descriptors(pid).size, variables: File.binread("/proc/#{pid}/environ").count("\0"),
      arguments: ProcessTable.title(pid), signals: File.read("/proc/#{pid}/status")[/^Sig(?:Blk|Ign):.*/] }
  end

  # The limit of 3 clients is in the server's favour: they are always there, and each request has a connection of its own.
  it "C1 20 by USR2 lose no request, leave no process, and pile up neither descriptors nor memory nor variables" do
    server = start(options: { Pid: "app.pid" }, unix: false)
    masters = [server.pid]
    sizes = []
    unnoticed(server) do |clients|
      20.times do |index|
        server.write("config.ru", app("v#{index + 2}"))
        usr2(server, to: pid_in(server))
        eventually(20, -> { server.log }) { server.master != masters.last && server.log.scan("Fastrack is ready").size == masters.size + 1 }
        server.ended?
        eventually { !ProcessTable.alive?(masters.last) }
        masters << server.master
        clients.await_answers
        # Once it has nothing of the old one any more.
        sizes << eventually { measures(server.master).then { |found| found if pid_in(server) == server.master && server.workers.size == 2 } }
        sizes.last[:memory] = memory(server.master)
      end
      clients.news
      clients.await_answers
      expect(clients.news.last).to start_with("v21 ")
    end
    await_processes(server, 3)
    expect(server.processes).to contain_exactly(server.master, *server.workers)
    first, last = sizes.first, sizes.last
    expect(last.except(:memory)).to eq(first.except(:memory))
    expect(last[:memory]).to be < first[:memory] * 1.1
    expect(masters.uniq.size).to eq(21)
  end

  it "C1 20 by HUP lose no request, and pile up neither descriptors nor processes" do
    server = start(config: "after_fork { }")
    before = measures(server.pid)
    unnoticed(server) do
      20.times do |index|
        server.signal(:HUP)
        await_line(server, "Fastrack is ready", index + 2)
      end
    end
    await_processes(server, 3)
    expect(measures(server.pid)).to eq(before)
  end
end
