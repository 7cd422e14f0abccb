# frozen_string_literal: true

require "fastrack/repeats"

RSpec.describe "What fails again and again" do
  # Frames of the server's own code.
  let(:own) { %r{#{Regexp.escape(Server::LIB)}/} }

  # A ConfigFile whose hook notes each try, in a file for each kind of failure, and fails once there is a file `broken`.
  def config(hook, failure) = <<~RUBY
    err_respawn_interval 0.02
    max_workers 2
    #{hook} do |*|
      if File.exist?("broken")
        File.write("tries", "#{failure}\\n", mode: "a")
        #{failure}
      end
    end
    # A process that counts, and that the machine has stop meanwhile, is waited for.
    Fastrack::Repeats.send(:remove_const, :WRITE_BACK_TIME)
    Fastrack::Repeats::WRITE_BACK_TIME = 5
  RUBY

  # All workers have to be forked anew.
  def break_workers(server, text = "")
    server.write("broken", text)
    server.workers.each { |pid| server.signal(:KILL, to: pid) }
  end

  def tries(server, count) = Eventually.eventually(Server::DEADLINE, -> { server.log }) { server.lines_of("tries").size >= count }

  {
    "after_fork" => ["raise 'no database'", /worker \d failed: .*fastrack\.rb:6:in .*: no database \(RuntimeError\)$/],
    "before_fork" => ["require 'no/agent'", /cannot spawn worker \d: .*: cannot load such file -- no\/agent \(LoadError\)$/],
    "after_worker_ready" => ["exit 3", /exit\(3\) was called in worker \d \(pid \d+\), at .*fastrack\.rb:6:in/]
  }.each do |hook, (failure, line)|
    it "is in the log once, with the app's frames, where a hook does (#{hook})" do
      server = Server.ready(ru: Rackups::PID, config: config(hook, failure))
      break_workers(server)
      tries(server, 45)
      # A machine that is slow has lines with a count, too.
      log = server.log[/was killed by SIGKILL.*/m].lines.grep_v(/ times so far\)$/).join
      expect(log.scan(line).size).to eq(1)
      expect(log).not_to match(own)
      # What it has failed by, how it exited, and how many have failed: 10, 20 and 40.
      expect(log.lines.size).to be <= 12
      server.remove("broken")
      expect(server.get.status).to eq(200)
    end
  end

  it "is in the log again where it fails by something else" do
    server = Server.ready(ru: Rackups::PID, config: config("after_fork", "raise File.read('broken')"))
    break_workers(server, "no database")
    tries(server, 5)
    server.write("broken", "no broker")
    server.await_log(/worker \d failed: .*no broker/)
    expect(server.log.scan("no database").size).to eq(1)
  end

  it "is counted by all processes, and told at intervals that grow" do
    repeats = Fastrack::Repeats.new
    expect(repeats.count("a", 0)).to eq(1)
    forked = fork { exit!(repeats.count("a", 1).nil? && repeats.count("b", 1) == 1) }
    expect(Process.wait2(forked).last).to be_success
    told = (2..200).filter_map { |second| repeats.count("a", second)&.then { |count| [second, count] } }
    expect(told).to eq([[10, 11], [30, 31], [70, 71], [150, 151]])
    expect(repeats.count("b", 30)).to eq(2)
  ensure
    repeats&.close
  end

  it "is new when it has not come for a minute, or when a process has died with the count" do
    repeats = Fastrack::Repeats.new
    expect([repeats.count("a", 0), repeats.count("a", 5), repeats.count("a", 70)]).to eq([1, nil, 1])
    repeats.send(:take)
    expect([repeats.count("a", 71), repeats.count("a", 72)]).to eq([1, nil])
  ensure
    repeats&.close
  end

  it "is remembered of the last sixteen, which a pipe takes at once" do
    repeats = Fastrack::Repeats.new
    expect((0..40).map { |number| repeats.count(number.to_s, 1e9) }.uniq).to eq([1])
    expect([repeats.count("25", 1e9), repeats.count("24", 1e9)]).to eq([nil, 1])
    expect(repeats.send(:take).size).to eq(16)
  ensure
    repeats&.close
  end

  it "begins anew where an app has written something else into the pipe, of which nothing but numbers is read" do
    repeats = Fastrack::Repeats.new
    repeats.send(:take)
    repeats.instance_variable_get(:@writer).write(Marshal.dump("a" => [ENV.to_h]))
    expect(Marshal).not_to receive(:load)
    expect([repeats.count("a", 0), repeats.count("a", 5)]).to eq([1, nil])
  ensure
    repeats&.close
  end

  it "is told without the server's frames where an app does not load" do
    server = Server.fail_to_start(ru: "require 'no/library'", fastrack: true)
    expect(server.log).to match(/^fastrack: the app does not load: .*cannot load such file -- no\/library \(LoadError\)$/)
    expect([server.log.match?(own), server.status.exitstatus]).to eq([false, 1])
  end

  it "names the request of Ruby's `fatal`, which ends a worker" do
    server = Server.start(ru: "run ->(_env) { Queue.new.pop }", options: { MaxWorkers: 1 })
    expect(server.get("/wait?secret=1").status).to eq(500)
    server.await_log(/^fastrack: GET \/wait failed: .*No live threads left\. Deadlock\? \(fatal\)$/)
    server.await_log(/^fastrack: worker 0 \(pid \d+\) exited with status 1$/)
    expect(server.log).not_to match(own)
  end
end
