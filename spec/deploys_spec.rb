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

  # Deploys a version.
  #
  # @return [Hash] what the new master has, once the old one is gone
  def deploy(server, version)
    old = server.master
    server.write("config.ru", app(version))
    usr2(server, to: pid_in(server))
    eventually(20, -> { server.log }) { server.master != old && server.log.include?("Fastrack is ready Workers:2 Pid:#{server.master}") }
    # Which reaps the first one.
    eventually { server.ended? && !ProcessTable.alive?(old) }
    eventually { server.workers.size == 2 && pid_in(server) == server.master }
    measures(server.master).merge(memory: memory(server.master))
  end

  { "connections for each request" => false, "kept connections" => true }.each do |what, kept|
    it "C1 20 by USR2 lose no request of clients with #{what}, leave no process, and pile up no descriptors, memory, variables" do
      server = start(options: { Pid: "app.pid" })
      sizes = []
      bodies = unnoticed(server, kept: kept) do |clients|
        20.times do |index|
          sizes << deploy(server, "v#{index + 2}")
          clients.await_answers
        end
      end
      expect(bodies.map { |body| body.split.first }.uniq.size).to eq(21)
      await_processes(server, 3)
      expect(server.processes).to contain_exactly(server.master, *server.workers)
      first, last = sizes.first, sizes.last
      expect(last.except(:memory)).to eq(first.except(:memory))
      expect(last[:memory]).to be < first[:memory] * 1.1
    end
  end

  it "A8 20 by start_server lose no request of clients with kept connections, and leave no process" do
    skip "start_server is not installed (Debian: libserver-starter-perl)" unless system("command -v start_server >/dev/null")
    server = start(ru: app("v0"), options: { Host: nil, Port: nil },
                   wrapper: ["start_server", "--port=127.0.0.1:0", "--interval=1", "--"])
    unnoticed(server, kept: true) do
      20.times do |index|
        server.write("config.ru", app("v#{index + 1}"))
        server.signal(:HUP)
        await_line(server, /^old worker \d+ died/, index + 1)
      end
    end
    expect(server.get.body).to eq("v20 #{server.master}")
    await_processes(server, 4)
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
