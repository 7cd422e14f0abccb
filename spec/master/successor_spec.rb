# frozen_string_literal: true

require_relative "../spec_helper"

# HUP onto what may not boot: a worker stays until its successor serves.
RSpec.describe "A worker's successor on HUP" do
  def start(count, config: "", **options)
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: count, MaxRequestPerChild: 0, ErrRespawnInterval: 0.1, **options }, config: <<~RUBY)
      after_fork do |_, worker|
        File.write("forked", "\#{worker.nr} \#{Process.pid}\\n", mode: "a")
        #{config}
        sleep 0.01 while File.exist?("wait")
        raise "no such code" if File.exist?("broken")
      end
    RUBY
    await_line(server, "Fastrack is ready")
    server
  end

  def await_line(server, text, times = 1)
    eventually(20, -> { server.log }) { server.log.scan(text).size >= times }
  end

  [1, 3].each do |count|
    describe "of #{count}" do
      it "is forked first, and the old one serves until it is ready" do
        server = start(count)
        before = server.workers
        server.write("wait", "")
        server.signal(:HUP)
        during = server.await_workers(count + 1)
        expect(during).to include(*before)
        expect(Array.new(8) { server.get.body.to_i } - before).to eq([])
        File.unlink(File.join(server.dir, "wait"))
        await_line(server, "Fastrack is ready", 2)
        server.await_workers(count) { |found| (found & before).empty? }
        # Each of them has its own number, from 0.
        expect(server.lines_of("forked").last(count).map(&:to_i)).to eq([*0...count])
      end

      it "costs no worker if it does not boot: the old ones serve on, a line says so, and it is tried again" do
        server = start(count)
        before = server.workers
        server.write("broken", "")
        clients = ClientLoop.run(server) do
          server.signal(:HUP)
          await_line(server, /^fastrack: worker 0: the new one does not boot, the old one \(pid #{before.min}\) serves on; trying again every 0.1 s$/)
          await_line(server, /^fastrack: the last 10 workers failed to boot: #{count} of #{count} serve; trying again every 0.1 s$/)
        end
        expect(clients.failures).to eq([])
        expect(clients.bodies.map(&:to_i) - before).to eq([])
        File.unlink(File.join(server.dir, "broken"))
        server.await_workers(count) { |found| (found & before).empty? }
      end
    end
  end

  it "costs none where before_fork raises, either" do
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 1, ErrRespawnInterval: 0.1 }, config: <<~RUBY)
      before_fork { raise "not now" if File.exist?("broken") }
    RUBY
    before = server.await_workers(1)
    await_line(server, "Fastrack is ready")
    server.write("broken", "")
    server.signal(:HUP)
    await_line(server, /^fastrack: worker 0: the new one does not boot, the old one \(pid #{before.first}\) serves on/)
    expect(server.get.body.to_i).to eq(before.first)
    File.unlink(File.join(server.dir, "broken"))
    server.await_workers(1) { |found| found != before }
  end

  it "is stopped, if it hangs, by the next HUP" do
    server = start(1)
    before = server.workers
    server.write("wait", "")
    server.signal(:HUP)
    hung = server.await_workers(2) - before
    File.unlink(File.join(server.dir, "wait"))
    server.signal(:HUP)
    server.await_workers(1) { |found| (found & [*before, *hung]).empty? }
  end

  it "is not forked while two old ones are still finishing: there are never more than MaxWorkers + 2" do
    server = Server.start(ru: Rackups::GATE, options: { MaxWorkers: 3, MaxRequestPerChild: 0 })
    await_line(server, "Fastrack is ready")
    old = server.workers
    requests = Array.new(3) { Thread.new { server.get("/slow").status } }
    most = 0
    eventually { ProcessTable.children(server.master).size == 3 && File.exist?(File.join(server.dir, "started")) }
    server.signal(:HUP)
    eventually do
      most = [most, server.workers.size].max
      most == 5
    end
    20.times { most = [most, server.workers.size].max }
    server.write("go", "")
    expect(requests.map(&:value)).to all(eq(200))
    server.await_workers(3) { |found| (found & old).empty? }
    expect(most).to eq(5)
  end

  it "of a worker beyond TTOU is none" do
    server = start(2)
    server.write("wait", "")
    server.signal(:HUP)
    server.await_workers(3)
    2.times { |index| server.signal(:TTOU) && await_line(server, "TTOU: changing to", index + 1) }
    server.await_workers(0)
    File.unlink(File.join(server.dir, "wait"))
    server.signal(:TTIN)
    server.await_workers(1)
    expect(server.get.status).to eq(200)
  end
end
