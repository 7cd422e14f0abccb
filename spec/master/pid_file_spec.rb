# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/reexec_helpers"
require_relative "../../lib/fastrack/process/pid_file"

RSpec.describe "The pid file" do
  include ReexecHelpers

  # The pid of a process that has ended.
  def dead_pid
    Process.wait(spawn("true")).tap { |pid| expect(ProcessTable.entry(pid)).to be_nil }
  end

  { "at its end" => "", "from where it was written, whatever folder the master is in by then" => "before_fork { Dir.chdir('/') }" }
    .each do |what, hook|
      it "C2 is written before the server is ready, and removed #{what}" do
        server = start(config: "pid 'app.pid'\n#{hook}")
        expect(pid_in(server)).to eq(server.pid)
        server.stop
        expect(File.exist?(File.join(server.dir, "app.pid"))).to be(false)
      end
    end

  it "B-faults one that a dead process has left is replaced, with a line in the log" do
    Dir.mktmpdir do |dir|
      path = File.join(dir, "app.pid")
      pid = dead_pid
      File.write(path, "#{pid}\n")
      reader = File.open(path)
      server = start(options: { Pid: path })
      # In one step: whoever has it open reads the old number, and not a part of the new one.
      expect(reader.read).to eq("#{pid}\n")
      reader.close
      expect(server.log).to include("fastrack: pid file #{path}: replacing that of process #{pid}, which is gone\n")
      expect(File.read(path)).to eq("#{server.pid}\n")
    end
  end

  { "without a number" => "", "with a number that is no pid" => "9" * 30 }.each do |what, text|
    it "B-faults one #{what} is replaced" do
      Dir.mktmpdir do |dir|
        path = File.join(dir, "app.pid")
        File.write(path, text)
        expect(start(options: { Pid: path }).pid).to eq(File.read(path).to_i)
      end
    end
  end

  it "B-faults a process of another user's, which may not be asked, runs" do
    allow(Process).to receive(:kill).with(0, 4711).and_raise(Errno::EPERM)
    expect(Fastrack::PidFile.running?(4711)).to be(true)
  end

  it "B-faults one of a process that runs ends the start with one line, and stays" do
    Dir.mktmpdir do |dir|
      path = File.join(dir, "app.pid")
      File.write(path, Process.pid.to_s)
      server = Server.fail_to_start(ru: Rackups::PID, options: { Pid: path })
      expect(server.log).to eq("fastrack: pid file #{path} belongs to process #{Process.pid}, which is running\n")
      expect(server.status.exitstatus).to eq(1)
      expect(File.read(path)).to eq(Process.pid.to_s)
    end
  end

  it "B-faults one whose pid some other program has by now is replaced" do
    Dir.mktmpdir do |dir|
      path = File.join(dir, "app.pid")
      other = spawn("sleep 60")
      File.write(path, other.to_s)
      File.utime(Time.now - 60, Time.now - 60, path)
      expect(start(options: { Pid: path }).pid).to eq(File.read(path).to_i)
    ensure
      Process.kill(:KILL, other)
      Process.wait(other)
    end
  end

  it "B-faults one of a server that runs is that server's, whatever is written in it, until it is killed" do
    Dir.mktmpdir do |dir|
      path = File.join(dir, "app.pid")
      server = start(options: { Pid: path })
      File.write(path, "")
      second = Server.fail_to_start(ru: Rackups::PID, options: { Pid: path })
      expect(second.log).to eq("fastrack: pid file #{path} belongs to a server, which is running\n")
      File.write(path, server.pid.to_s)
      server.signal(:KILL)
      server.wait
      expect(start(options: { Pid: path }).pid).to eq(File.read(path).to_i)
    end
  end

  { "without one" => nil, "with one that a dead process has left" => true }.each do |what, left|
    it "B-faults of several servers that start at once #{what}, one gets it" do
      Dir.mktmpdir do |dir|
        path = File.join(dir, "app.pid")
        File.write(path, dead_pid.to_s) if left
        servers = Array.new(4) { Server.launch(ru: Rackups::PID, options: { Pid: path, MaxWorkers: 1 }) }
        running, refused = eventually { servers.partition { |one| !one.ended? }.then { |two| two if two.last.size >= 3 } }
        eventually { running.first.log.include?("Fastrack is ready") }
        expect(running.map(&:pid)).to eq([File.read(path).to_i])
        expect(refused.map { |one| one.status.exitstatus }).to eq([1, 1, 1])
        expect(Dir.children(dir) - ["app.control"]).to eq(["app.pid"])
      end
    end
  end

  { "in a folder that is not there" => ["missing/app.pid", "no such file or directory"],
    "that is a folder" => [".", "is a directory"] }.each do |what, (name, reason)|
    it "B-faults one #{what} ends the start with one line" do
      Dir.mktmpdir do |dir|
        path = File.expand_path(name, dir)
        server = Server.fail_to_start(ru: Rackups::PID, options: { Pid: path })
        expect(server.log).to eq("fastrack: pid file #{path}: #{reason}\n")
        expect(server.status.exitstatus).to eq(1)
        expect(Dir.glob("#{path}*")).to eq([path].select { |one| File.directory?(one) })
      end
    end
  end

  it "B-faults one that is another's by the end stays" do
    server = start(options: { Pid: "app.pid" })
    server.write("app.pid", "1")
    server.stop
    expect(pid_in(server)).to eq(1)
  end
end
