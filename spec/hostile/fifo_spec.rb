# frozen_string_literal: true

# FIFOs that nobody reads or writes, in the place of files: a server that opens one waits for nobody.
RSpec.describe "A FIFO", once: "files of the master" do
  include ReexecHelpers

  around { |example| Dir.mktmpdir { |dir| @dir = dir and example.run } }

  def fifo(name) = File.join(@dir, name).tap { |path| File.mkfifo(path) }

  it "B-faults in the place of a log is named at USR1, and the server goes on with the log that it had" do
    server = start(ru: Rackups::PID, options: { StderrPath: "#{@dir}/err.log" })
    File.rename("#{@dir}/err.log", "#{@dir}/err.log.1")
    fifo("err.log")
    server.signal(:USR1)
    eventually { File.read("#{@dir}/err.log.1").include?("cannot reopen #{@dir}/err.log: it is a FIFO that nobody reads, or a socket") }
    server.renew(server.await_workers(2))
    expect(server.get.status).to eq(200)
  end

  it "B-faults in the place of a log that somebody reads is opened at USR1, and later writes wait" do
    server = start(ru: "run ->(_env) { $stderr.puts 'a request'; [200, {}, [Process.pid.to_s]] }", options: { StderrPath: "#{@dir}/err.log" })
    File.rename("#{@dir}/err.log", "#{@dir}/err.log.1")
    reader = File.open(fifo("err.log"), File::RDONLY | File::NONBLOCK)
    server.signal(:USR1)
    eventually { [server.pid, *server.workers].all? { |pid| ProcessTable.descriptors(pid)[2] == "#{@dir}/err.log" } }
    flags = File.read("/proc/#{server.pid}/fdinfo/2")[/^flags:\s+(\d+)/, 1].oct
    expect(flags & File::NONBLOCK).to eq(0)
    server.get
    expect(reader.readpartial(100)).to include("a request")
    reader.close
  end

  it "B-faults as Pid ends the start with one line, and does not stop a server whose file it replaces" do
    path = fifo("app.pid")
    server = Server.fail_to_start(ru: Rackups::PID, options: { Pid: path })
    expect([server.log, server.status.exitstatus]).to eq(["fastrack: pid file #{path}: it is no regular file\n", 1])
    File.unlink(path)
    server = start(ru: Rackups::PID, options: { Pid: path })
    File.unlink(path)
    File.mkfifo(path)
    expect([server.stop.exitstatus, File.pipe?(path)]).to eq([0, true])
  end

  it "B-faults as the state file of a puma.rb holds up nothing" do
    File.write("#{@dir}/puma.rb", "workers 1\nstate_path '#{fifo("state")}'\nbind 'tcp://127.0.0.1:0'")
    server = start(options: { ConfigFile: "#{@dir}/puma.rb" })
    server.await_log("cannot write the state file #{@dir}/state") unless Process.uid.zero?
    expect(server.get.status).to eq(200)
  end
end
