# frozen_string_literal: true

require "support/refork_helpers"

# The kernel's OOM killer takes any process at any time.
RSpec.describe "kill -9 at random", linux: "a subreaper (prctl(2))" do
  include ReforkHelpers

  # FASTRACK_KILLS=200 for a night's run.
  kills = Integer(ENV.fetch("FASTRACK_KILLS", 12))

  # Waits until there are three workers, all of them known: the master's status has the same pids as the process table, and each answers.
  def whole(server)
    eventually(20, -> { "#{roles(server)}\n#{server.log.lines.last(40).join}" }) do
      found = roles(server)
      found.keys.compact.size == found.size && found.fetch("worker", []).size == 3 && known(server).sort == found["worker"].sort && found
    end
  end

  # The process may have ended since.
  def kill(pid)
    Process.kill(:KILL, pid) if pid
  rescue Errno::ESRCH
    nil
  end

  def known(server)
    MonitorClient.new("#{server.dir}/control").status.fetch("workers").filter_map { |worker| worker["pid"] }
  end

  victims = {
    "a worker" => ->(found) { found.fetch("worker", []).sample },
    "the process that forks the workers" => ->(found) { found.fetch("mold", []).max },
    "any of them" => ->(found) { found.values.flatten.sample }
  }

  victims.each do |what, victim|
    it "of #{what} leaves three workers, each known to the master, and nothing behind" do
      server = serving(fastrack: true, config: "# none\n", ErrRespawnInterval: 0.05)
      whole(server)
      ClientLoop.run(server, paths: ["/keep"] * 3) do
        kills.times do |index|
          server.signal(:URG) if (index % 4).zero?
          server.signal(:HUP) if index % 4 == 2
          sleep(rand * 0.3)
          kill(victim.call(roles(server)))
          # The youngest may not be known to the master yet.
          kill(ProcessTable.children(server.master).max) if index.odd?
        end
        whole(server)
      end
      # The last one killed may be a zombie for a moment.
      eventually { ProcessTable.zombies(server.master).empty? }
      expect(server.stop.exitstatus).to eq(0)
      eventually { server.processes.empty? }
    end
  end

  it "of the master leaves no process behind" do
    kills.fdiv(4).ceil.times do
      server = serving(fastrack: true, config: "# none\n")
      server.signal(%i[URG HUP].sample)
      sleep(rand * 0.3)
      server.signal(:KILL)
      eventually(20, -> { server.processes.map { |pid| ProcessTable.title(pid) } }) { server.processes.empty? }
    end
  end
end
