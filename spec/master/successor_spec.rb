# frozen_string_literal: true

# HUP onto what may not boot: a worker stays until its successor serves.
RSpec.describe "A worker's successor on HUP", once: "the order of starts and stops is the master's" do
  def start(count)
    Server.ready(ru: Rackups::PID, options: { MaxWorkers: count, MaxRequestPerChild: 0, ErrRespawnInterval: 0.1 }, config: <<~RUBY)
      after_fork do |_, worker|
        File.write("forked", "\#{worker.nr} \#{Process.pid}\\n", mode: "a")
        sleep 0.01 while File.exist?("wait")
        raise "no such code" if File.exist?("broken")
      end
    RUBY
  end

  [1, 3].each do |count|
    it "of #{count} is forked first, and the old one serves until it is ready" do
      server = start(count)
      before = server.workers
      server.write("wait", "")
      server.signal(:HUP)
      expect(server.await_workers(count + 1)).to include(*before)
      expect(Array.new(8) { server.get.body.to_i } - before).to eq([])
      server.remove("wait")
      server.await_ready(2).await_others(before)
      # Each of them has its own number, from 0.
      expect(server.lines_of("forked").last(count).map(&:to_i)).to eq([*0...count])
    end

    it "of #{count} costs no worker if it does not boot: the old ones serve on, and a line says so" do
      server = start(count)
      before = server.workers
      server.write("broken", "")
      clients = ClientLoop.run(server) do
        server.signal(:HUP)
        server.await_log(/^fastrack: HUP: the new code is given up: worker 0 \(pid \d+\) .* before it was ready.*; the old code serves on$/)
      end
      expect([clients.failures, clients.bodies.map(&:to_i) - before]).to eq([[], []])
      expect(server.workers).to eq(before)
      server.remove("broken")
      server.renew(before)
    end
  end

  it "costs none where before_fork raises, either" do
    server = Server.ready(ru: Rackups::PID, options: { MaxWorkers: 1, ErrRespawnInterval: 0.1 }, config: <<~RUBY)
      before_fork { raise "not now" if File.exist?("broken") }
    RUBY
    before = server.await_workers(1)
    server.write("broken", "")
    server.signal(:HUP)
    server.await_log(/^fastrack: HUP: the new code is given up: worker 0 .*; the old code serves on$/)
    expect(server.get.body.to_i).to eq(before.first)
    server.remove("broken")
    server.renew(before)
  end

  it "is not forked while two old ones are still finishing: there are never more than MaxWorkers + 2" do
    server = Server.ready(ru: ThreadsApp::RU, options: { MaxWorkers: 3, MaxRequestPerChild: 0 })
    old = server.workers
    requests = Array.new(3) { Thread.new { server.get("/wait?go").status } }
    most = 0
    eventually { server.lines_of("waiting").size == 3 }
    server.signal(:HUP)
    eventually do
      most = [most, server.workers.size].max
      most == 5
    end
    20.times { most = [most, server.workers.size].max }
    server.write("go", "")
    expect(requests.map(&:value)).to all(eq(200))
    server.await_others(old)
    expect(most).to eq(5)
  end

  it "of a worker beyond TTOU is none, until TTIN; clients wait meanwhile" do
    server = start(2)
    server.write("wait", "")
    server.signal(:HUP)
    server.await_workers(3)
    2.times { |index| server.signal(:TTOU) && server.await_log("TTOU: changing to", index + 1) }
    server.await_workers(0)
    # There are no fewer.
    server.signal(:TTOU)
    server.await_log("TTOU: changing to 0 workers", 2)
    client = Thread.new { server.get.status }
    server.remove("wait")
    server.signal(:TTIN)
    expect(client.value).to eq(200)
    server.await_workers(1)
  end
end
