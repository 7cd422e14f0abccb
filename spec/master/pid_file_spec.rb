# frozen_string_literal: true

require_relative "../../lib/fastrack/process/pid_file"

RSpec.describe "The pid file", once: "files and processes" do
  include Folder
  include ReexecHelpers

  # A file that is there before its server, until that has ended.
  def path = File.join(@dir, "app.pid")

  # The pid of a process that has ended.
  def dead_pid = Process.wait(spawn("true")).tap { |pid| expect(ProcessTable.entry(pid)).to be_nil }

  # A server that has the file by now.
  def start_with_it = start(options: { Pid: path }).tap { |server| expect(File.read(path)).to eq("#{server.pid}\n") }

  # One line, and status 1.
  def expect_refusal(line, place = path)
    server = Server.fail_to_start(ru: Rackups::PID, options: { Pid: place })
    expect([server.log, server.status.exitstatus]).to eq(["fastrack: pid file #{place}#{line}\n", 1])
  end

  { "at its end" => "", "from where it was written, whatever folder the master is in by then" => "before_fork { Dir.chdir('/') }" }
    .each do |what, hook|
      it "C2 is written before the server is ready, and removed #{what}" do
        server = start(config: "pid 'app.pid'\n#{hook}")
        expect(pid_in(server)).to eq(server.pid)
        server.stop
        expect(server.file?("app.pid")).to be(false)
      end
    end

  it "B-faults one that a dead process has left is replaced, with a line in the log" do
    pid = dead_pid
    File.write(path, "#{pid}\n")
    File.open(path) do |reader|
      server = start_with_it
      # In one step: whoever has it open reads the old number, and not a part of the new one.
      expect(reader.read).to eq("#{pid}\n")
      expect(server.log).to include("fastrack: pid file #{path}: replacing that of process #{pid}, which is gone\n")
    end
  end

  { "without a number" => "", "with a number that is no pid" => "9" * 30 }.each do |what, text|
    it "B-faults one #{what} is replaced" do
      File.write(path, text)
      start_with_it
    end
  end

  it "B-faults a process of another user's, which may not be asked, runs" do
    allow(Process).to receive(:kill).with(0, 4711).and_raise(Errno::EPERM)
    expect(Fastrack::ProcStat.exists?(4711)).to be(true)
  end

  it "B-faults is of a process that has it locked, or, without locks, of one with a master's title that is older than the file" do
    skip "it takes /proc" unless File.readable?("/proc/locks")

    owner = -> { Fastrack::PidFile.owner(path) }
    expect([start_with_it.pid, owner.call].uniq.size).to eq(1)
    FileUtils.rm(path)
    File.write(path, Process.pid.to_s)
    locked = File.open(path).tap { |file| file.flock(File::LOCK_EX) }
    expect(owner.call).to eq(Process.pid)
    # Locked by another process than the one that it names.
    File.write(path, Process.ppid.to_s)
    expect(owner.call).to be_nil
    locked.close
    pid = spawn(RbConfig.ruby, "-e", "Process.setproctitle('fastrack master'); sleep")
    eventually { ProcessTable.title(pid) == "fastrack master" }
    File.write(path, pid.to_s)
    expect(owner.call).to eq(pid)
    File.utime(Time.now - 3600, Time.now - 3600, path)
    expect(owner.call).to be_nil
  ensure
    pid && Process.kill(:KILL, pid) && Process.wait(pid)
  end

  it "D9 of another user is no reason for root to signal a process of root's that is no master", if: Process.uid.zero? && RUBY_PLATFORM.include?("linux") do
    pid = spawn(RbConfig.ruby, "-e", "file = File.open(ARGV[0], 'w'); file.flock(File::LOCK_EX); file.puts(Process.pid); file.flush; sleep", path)
    eventually { File.exist?(path) && File.read(path) == "#{pid}\n" }
    expect(Fastrack::PidFile.owner(path)).to eq(pid)
    File.chown(Etc.getpwnam("nobody").uid, nil, path)
    expect(Fastrack::PidFile.owner(path)).to be_nil
  ensure
    pid && Process.kill(:KILL, pid) && Process.wait(pid)
  end

  it "B-faults one of a process that runs ends the start with one line, and stays" do
    File.write(path, Process.pid.to_s)
    expect_refusal(" belongs to process #{Process.pid}, which is running")
    expect(File.read(path)).to eq(Process.pid.to_s)
  end

  it "B-faults one whose pid some other program has by now is replaced" do
    other = spawn("sleep 600")
    File.write(path, other.to_s)
    File.utime(Time.now - 60, Time.now - 60, path)
    start_with_it
  ensure
    Process.kill(:KILL, other)
    Process.wait(other)
  end

  it "B-faults one of a server that runs is that server's, whatever is written in it, until it is killed" do
    server = start_with_it
    File.write(path, "")
    expect_refusal(" belongs to a server, which is running")
    File.write(path, server.pid.to_s)
    server.signal(:KILL)
    server.wait
    start_with_it
  end

  { "without one" => nil, "with one that a dead process has left" => true }.each do |what, left|
    it "B-faults of several servers that start at once #{what}, one gets it" do
      File.write(path, dead_pid.to_s) if left
      servers = Array.new(4) { Server.launch(ru: Rackups::PID, options: { Pid: path, MaxWorkers: 1 }) }
      running, refused = eventually { servers.partition { |one| !one.ended? }.then { |two| two if two.last.size >= 3 } }
      running.first.await_ready
      expect([running.map(&:pid), refused.map { |one| one.status.exitstatus }]).to eq([[File.read(path).to_i], [1, 1, 1]])
      expect(Dir.children(File.dirname(path)) - ["app.control"]).to eq(["app.pid"])
    end
  end

  { "in a folder that is not there" => ["missing/app.pid", "no such file or directory"],
    "that is a folder" => [".", "is a directory"] }.each do |what, (name, reason)|
    it "B-faults one #{what} ends the start with one line" do
      place = File.expand_path(name, File.dirname(path))
      expect_refusal(": #{reason}", place)
      expect(Dir.glob("#{place}*")).to eq([place].select { |one| File.directory?(one) })
    end
  end

  it "B-faults one that is another's by the end stays" do
    server = start(options: { Pid: "app.pid" })
    server.write("app.pid", "1")
    server.stop
    expect(pid_in(server)).to eq(1)
  end

  # rackup removes it by an at_exit hook, which each forked process inherits.
  describe "that rackup writes (--pid)" do
    def start_by_rackup(**more) = Server.ready(ru: Rackups::PID, arguments: ["--pid", "app.pid"], options: { MaxWorkers: 1 }, **more)

    it "B-faults stays when a worker ends" do
      server = start_by_rackup
      worker = server.workers.first
      server.signal(:TERM, to: worker)
      server.await_workers(1) { |found| found != [worker] }
      expect(pid_in(server)).to eq(server.pid)
    end

    it "B-faults stays when a process ends that a hook in the master has forked" do
      server = start_by_rackup(config: "before_fork { Process.wait(fork { exit }) }")
      expect(pid_in(server)).to eq(server.pid)
    end
  end
end
