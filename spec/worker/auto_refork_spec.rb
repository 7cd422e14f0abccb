# frozen_string_literal: true

require "support/refork_helpers"

RSpec.describe "`refork true`", linux: "a subreaper (prctl(2))", once: "the master counts requests and memory" do
  include ReforkHelpers

  # Each worker comes to have 20 MB, with its first request. Requests take a while, so that all workers have some.
  app = 'run ->(_env) { $kept ||= "x" * (20 << 20); sleep 0.005; [200, {}, [$kept.bytesize.to_s]] }'

  def serve(app, **options) = Server.ready(ru: app, fastrack: true, options: { MaxWorkers: 3, MaxRequestPerChild: 0, Refork: true, **options })

  it "reforks when workers have taken their memory, and until that saves next to nothing more" do
    server = serve(app)
    loop = ClientLoop.run(server, kept: true) { server.await_log(/refork: (?:no more by itself: the last one has saved |given up: .* the mold's first, has )/) }
    expect(loop.failures).to eq([])
    figures = server.log[/refork: .*/].match(/generation 2 from worker \d \(pid \d+, (\d+) requests\): 3 workers (\d+) MB -> (\d+) MB\z/).captures.map(&:to_i)
    expect([figures[0], figures[1] - figures[2]]).to match([be >= 50, be >= 30])
  end

  it "need not be guessed: the log, the status and the monitor say what it would save, until it has" do
    server = serve(app, Refork: false, ControlPath: "control")
    monitor = MonitorClient.new(server.file("control"))
    expect(monitor.status["refork_saving"]).to be_nil
    loop = ClientLoop.run(server, kept: true) { server.await_log(/refork: 3 workers would share up to \d+ MB of \d+ MB, with `refork true` or after `fastrack refork`$/) }
    saving = monitor.await("no saving") { |found| found["refork_saving"] }["refork_saving"]
    # Two of three workers have what the mold has, too.
    expect([loop.failures, server.log[/share up to (\d+)/, 1].to_i, saving]).to match([[], be_between(38, 48), be_between(38 << 20, 48 << 20)])
    output, = Open3.capture2e(RbConfig.ruby, Server::COMMAND, "status", "--control", "control", chdir: server.dir)
    expect(output).to match(/^refork would save up to \d\d MB$/)
    refork(server)
    expect(monitor.status["refork_saving"]).to be_nil
    server.await_log("has ended: ")
    before, after = server.log.match(/refork: generation 2 .* (\d+) MB -> (\d+) MB$/).captures.map(&:to_i)
    expect(before - after).to be_between(28, 52)
  end

  it "says once what forbids it" do
    server = serve("Fastrack.forbid_refork!\n#{app}")
    ClientLoop.run(server, kept: true) do |loop|
      server.await_log(/refork: nothing happens: the app forbids it \(.*config\.ru:1\)$/)
      # The server looks again, more than once.
      served = loop.bodies.size
      eventually(60) { loop.bodies.size > served * 2 }
    end
    expect(server.log.scan("refork: ").size).to eq(1)
  end

  it "waits until the workers' memory grows no more and is a tenth of the whole, and ends with six generations" do
    require_relative "../../lib/fastrack/master/refork"
    requests = own = whole = now = 0
    handle = double(serving?: true, lingering?: false)
    allow(handle).to receive(:memory) { double(pss: 0, private: own) }
    workers = double(size: 2, each: [handle], scoreboard: double)
    allow(workers.scoreboard).to receive(:totals) { { requests: requests } }
    allow(Fastrack::ProcessMemory).to receive(:of).with("self") { double(pss: whole) }
    auto = Fastrack::AutoRefork.new(workers)
    look = ->(*figures) { (requests, own, whole = figures) && auto.due?(now += 2) }
    expect([[99, 20, 100], [100, 20, 100], [120, 20, 100], [125, 22, 100], [160, 9, 100], [200, 9, 100], [250, 11, 100], [320, 11, 100]].map { |one| look[*one] })
      .to eq([*[false] * 7, true])
    (1..6).each do |generation|
      auto.begun
      at = requests + (2 * 50 * (4**generation))
      expect([at - 1, at, 2 * at].map { |count| look[count, 40, 100 * (0.9**generation)] }).to eq([false, false, generation < 6])
    end
    expect(auto.due_at).to be_nil
    whole = 100
    (auto = Fastrack::AutoRefork.new(workers)).begun
    expect(Fastrack::Log).to receive(:line).with(/no more by itself: the last one has saved 4 % /)
    expect([400, 40_000].map { |count| look[requests + count, 40, 96] } + [auto.due_at]).to eq([false, false, nil])
    # One that has come to nothing saves nothing, and is none of the six.
    (auto = Fastrack::AutoRefork.new(workers)).begun
    auto.undone
    served = requests
    expect([200, 400, 700].map { |count| look[served + count, 40, 100] }).to eq([false, true, true])
  end
end
