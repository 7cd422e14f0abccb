# frozen_string_literal: true

# Programs and processes that an app starts where it is loaded, or in before_fork. Generation 0 forks the workers, and runs that code.
RSpec.describe "Processes that the app starts in generation 0", once: "processes" do
  # Each notes its pid. The last one does not end by TERM.
  config = <<~'RUBY'
    max_workers 2
    graceful_timeout 2
    before_fork do
      $started ||= begin
        stubborn = fork { trap("TERM") { nil }; File.write("deaf", ""); sleep }
        pids = [spawn("sleep", "1000"), IO.popen(%w[sleep 1001]).pid, fork { sleep }, Thread.new { spawn("sleep", "1002") }.value, stubborn]
        sleep 0.01 until File.exist?("deaf")
        File.write("started", "#{pids.join(" ")}\n", mode: "a")
        pids
      end
    end
  RUBY

  let(:server) { Server.ready(ru: Rackups::PID, fastrack: true, config: config) }

  def started(generation = 0)
    server.await_file("started")
    eventually { server.lines_of("started")[generation]&.split&.map(&:to_i) }
  end

  def alive(pids) = pids.select { |pid| ProcessTable.alive?(pid) }

  after { (server.lines_of("started").flat_map(&:split).map(&:to_i) & server.processes).each { |pid| Process.kill(:KILL, pid) } }

  it "end with their generation 0 when a HUP replaces it, by TERM and then by KILL" do
    before = started
    server.signal(:HUP)
    after = started(1)
    eventually { alive(before).empty? }
    expect(alive(after)).to eq(after)
    expect(server.log).to match(/^fastrack: generation 0 \(pid \d+\) ends 5 processes of the app: #{before.sort.join(", ")}$/)
  end

  it "end with the server" do
    before = started
    expect(server.stop.exitstatus).to eq(0)
    expect([alive(before), server.processes]).to eq([[], []])
  end

  it "end when the master is killed" do
    before = started
    server.signal(:KILL)
    server.wait
    eventually { alive(before).empty? && server.processes.empty? }
  end

  it "end when generation 0 is killed, and those of the next one stay" do
    before = started
    sleep 1 # Longer than the master takes to look at generation 0's children.
    server.signal(:KILL, to: server.molds.first)
    server.signal(:HUP)
    after = started(1)
    eventually { alive(before).empty? }
    expect(alive(after)).to eq(after)
    expect(server.get.status).to eq(200)
  end

  it "have no socket of the server's" do
    forked = started.values_at(2, 4)
    sockets = forked.map { |pid| ProcessTable.descriptors(pid).values.grep(/\Asocket:/) }
    expect(sockets).to eq([[], []])
  end

  it "stay when a hook of the app's at_exit has ended them, without a word" do
    quiet = Server.ready(ru: Rackups::PID, fastrack: true, config: <<~'RUBY')
      before_fork do
        $helper ||= spawn("sleep", "1000").tap do |pid|
          mold = Process.pid
          at_exit { Process.pid == mold && (Process.kill(:TERM, pid); Process.wait(pid); File.write("ended", "by the app")) }
        end
      end
    RUBY
    quiet.stop
    expect([quiet.lines_of("ended"), quiet.log.include?("of the app")]).to eq([["by the app"], false])
  end
end
