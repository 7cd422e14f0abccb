# frozen_string_literal: true

# The keys that yabeda-puma-plugin, Datadog and Scout read: Puma's docs/stats.md, cluster mode.
RSpec.describe "Puma's format of the statistics" do
  let(:ru) { <<~'RUBY' }
    require "fastrack/puma_stats"
    here = File.dirname(File.expand_path(__FILE__))
    run lambda { |env|
      if env["PATH_INFO"] == "/hold"
        File.write(File.join(here, "held"), "")
        sleep 0.01 until File.exist?(File.join(here, "release"))
      end
      [200, { "content-type" => "application/json" }, [Puma.stats]]
    }
  RUBY

  let(:worker_keys) { %i[started_at pid index phase booted last_checkin last_status] }

  def parse(text) = JSON.parse(text, symbolize_names: true)
  def sums(stats) = stats[:worker_status].map { |one| one[:last_status] }.then { |all| %i[running busy_threads pool_capacity max_threads].map { |key| all.sum { |one| one[key] } } }

  it "is Puma.stats in the app's own processes" do
    server = Server.ready(ru: ru, fastrack: true, options: { MaxWorkers: 2, MaxThreads: 3 })
    holding = Thread.new { server.get("/hold") }
    server.await_file("held")
    found = Eventually.eventually { parse(server.get("/stats").body).then { |stats| stats if sums(stats)[1] == 2 } }
    expect(found).to include(workers: 2, booted_workers: 2, old_workers: 0, phase: 0, started_at: /\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\z/,
                             versions: include(ruby: include(version: RUBY_VERSION)))
    expect(found[:worker_status].map { |one| one.values_at(:index, :pid, :booted) }).to match_array(server.workers.sort.each_with_index.map { |pid, nr| [nr, pid, true] })
    expect(found[:worker_status]).to all(satisfy { |one| one.keys == worker_keys })
    # Two requests are in the app: the one that is held, and the one that asks.
    expect(sums(found)).to eq([6, 2, 4, 6])
    server.write("release", "")
    expect(holding.value.status).to eq(200)
  end

  it "is a command for a running server, and tells a reload by the phase", linux: "the monitor" do
    server = Server.ready(ru: ru, fastrack: true, options: { MaxWorkers: 2, MaxThreads: 3, ControlPath: "control.sock" })
    stats = lambda do
      output, status = Open3.capture2e(Server::CLEAN_ENVIRONMENT, RbConfig.ruby, "-w", Server::COMMAND, "stats", "--puma", "--control", server.file("control.sock"))
      expect(status.exitstatus).to eq(0), output
      parse(output)
    end
    found = Eventually.eventually { stats.call.then { |one| one if one[:booted_workers] == 2 } }
    expect(found.keys).to eq(%i[started_at workers phase booted_workers old_workers worker_status versions])
    expect(found[:worker_status].first[:last_status].keys).to eq(%i[backlog running pool_capacity busy_threads max_threads requests_count])
    expect([sums(found), found[:phase]]).to eq([[6, 0, 6, 6], 0])
    server.signal(:HUP)
    Eventually.eventually { stats.call.values_at(:phase, :old_workers, :booted_workers) == [1, 0, 2] }
  end

  it "asks Puma's own method where Puma is there, and is without a worker in a process that belongs to no server" do
    code = 'module Puma; def self.stats_hash = @get_stats.stats; end; require "fastrack"; require "fastrack/puma_stats"; p Puma.stats_hash[:workers]'
    output, status = Open3.capture2e(RbConfig.ruby, "-w", "-I", Server::LIB, "-e", code)
    expect([output, status.exitstatus]).to eq(["0\n", 0])
  end
end
