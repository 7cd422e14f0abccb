# frozen_string_literal: true

RSpec.describe "A new master (USR2) that meets with trouble", once: "processes, signals and sockets" do
  include Folder
  include ReexecHelpers

  # What stands in the variable before the new master reads it.
  { "an older one, which has no version" => "sub(/.*:/, '')", "another layout" => "sub(/.*:/, 'other:')",
    "a form of the future" => "sub(/.*:/, 'what=ever;fds:')" }.each do |what, change|
    it "C1 of a version whose queue is of #{what} takes over, and kept connections are closed in good order" do
      server = start(config: "ENV['FASTRACK_QUEUE'] &&= ENV['FASTRACK_QUEUE'].#{change}")
      idle = Array.new(3) { KeptPeer.new(server).tap { |peer| peer.get("/") } }
      unnoticed(server, kept: true, idle: 0.2) { replace_master(server) }
      expect(server.log).to include("fastrack: FASTRACK_QUEUE cannot be used (it is of another version): waiting connections are not taken over")
      expect(idle).to all(be_closed_without_a_word)
      # That of its own queue.
      expect(ProcessTable.descriptors(server.master).values.grep(Portable::MEMORY).size).to eq(2)
    end
  end

  # What a process has forked ends a moment after it.
  def expect_none_besides(server, workers)
    eventually(20, -> { server.processes.map { |pid| [pid, ProcessTable.title(pid)] } }) do
      server.processes == [server.pid, *ProcessTable.molds(server.pid), *workers].sort
    end
  end

  # The files that are wrong, and what the old master says of it; the last is heard of by a HUP.
  { "whose app does not load" => [{ "config.ru" => "raise 'typo'" }, "exited with status 1"],
    "whose app is no Ruby" => [{ "config.ru" => "run ->(" }, "exited with status 1"],
    "whose ConfigFile raises" => [{ "fastrack.rb" => "raise 'typo'" }, "exited with status 1"],
    "whose app exits" => [{ "config.ru" => "exit!(0)" }, "exited with status 0"],
    "whose app is killed" => [{ "config.ru" => "Process.kill(:KILL, Process.pid)" }, "was killed by SIGKILL"],
    "whose before_exec raises" => [{ "fastrack.rb" => "before_exec { raise 'no' }" }, "exited with status 127", :hup] }
    .each do |what, (files, line, hup)|
    it "B-faults #{what} leaves the old one as it is, which says why, and no client notices" do
      server = start(config: "", options: { Pid: "app.pid" })
      ready = 1
      change = lambda do |changed|
        changed.each { |name, text| server.write(name, text) }
        server.signal(:HUP) && server.await_ready(ready += 1) if hup
        server.await_workers(2)
      end
      workers = change.call(files)
      unnoticed(server) do
        2.times do |round|
          usr2(server)
          server.await_log(/^fastrack: the new master \(pid \d+\) #{line} before it was ready; this one carries on$/, round + 1)
        end
      end
      expect_none_besides(server, workers)
      eventually { ProcessTable.zombies(server.pid).empty? }
      expect([pid_in(server), server.lines_of("app.pid.oldbin")]).to eq([server.pid, []])
      # Mended, it takes over.
      change.call("config.ru" => app("v2"), "fastrack.rb" => "")
      replace_master(server)
      expect(server.get.body).to start_with("v2 ")
    end
  end

  { "does not load in time" => ["config.ru", "sleep"],
    "heeds no TERM while it loads" => ["config.ru", "trap('TERM') {}; sleep"],
    "has workers that do not start in time" => ["fastrack.rb", "after_fork { |_, worker| sleep if worker.nr == 1 }"],
    "has a before_fork that raises" => ["fastrack.rb", "before_fork { raise 'no database' }"],
    "has an after_fork that exits" => ["fastrack.rb", "after_fork { exit }"] }.each do |what, (file, text)|
    it "B-faults #{what} is ended after BootTimeout, and the old one carries on" do
      server = start(config: "", options: { BootTimeout: GcMode.patient(1), GracefulTimeout: GcMode.patient(1), ErrRespawnInterval: 600, Pid: "app.pid" })
      workers = server.workers
      unnoticed(server) do
        server.write(file, text)
        usr2(server)
        server.await_log(/^fastrack: the new master \(pid \d+\) was not ready within BootTimeout; stopping it$/)
        server.await_log(/^fastrack: the new master \(pid \d+\) was not ready within BootTimeout; this one carries on$/)
      end
      await_processes(server, 3)
      expect_none_besides(server, workers)
      expect(pid_in(server)).to eq(server.pid)
    end
  end

  # The new master's boot waits for a file, so that the example decides when it is over.
  let(:waiting) { "File.write('booting', Process.pid.to_s)\nsleep 0.01 until File.exist?('go')\n#{app("v2")}" }

  def booting(server)
    server.write("config.ru", waiting)
    usr2(server)
    eventually { server.lines_of("booting").first&.to_i }
  end

  it "B-faults USR2 twice starts one new master" do
    server = start
    unnoticed(server) do
      booting(server)
      usr2(server)
      server.await_log(/^fastrack: USR2 is ignored: the new master \(pid \d+\) is already there$/)
      server.write("go", "")
      taken_over(server)
    end
    expect(server.log.scan("starting a new master").size).to eq(1)
    await_processes(server, 3)
  end

  it "B-faults USR2 to the new one is ignored until the old one has ended" do
    server = start_both
    usr2(server, to: server.master)
    server.await_log("USR2 is ignored: the old master is still running")
    server.signal(:QUIT)
    taken_over(server)
    second = server.master
    # It hears of the old one's end a moment later.
    eventually { usr2(server, to: second) && server.log.scan("starting a new master").size == 2 }
    server.await_ready(3)
    server.signal(:QUIT, to: second)
    await_processes(server, 3)
    expect([server.processes, server.get.status]).to match([include(server.master), 200])
  end

  %i[TERM INT].each do |name|
    it "B-faults USR2 then #{name} ends the server, and the new master with it" do
      server = start
      pid = booting(server)
      expect(server.stop(name).exitstatus).to eq(0)
      eventually { !ProcessTable.alive?(pid) }
      expect(server.processes).to eq([])
    end
  end

  it "B-faults USR2, QUIT and then TERM ends the new master, too" do
    server = start(ru: Rackups::GATE, options: { MaxWorkers: 1 })
    request = SlowRequest.new(server)
    pid = booting(server)
    server.signal(:QUIT)
    eventually { refused_usr2?(server) }
    server.signal(:TERM)
    eventually { !ProcessTable.alive?(pid) }
    expect([request.finish.status, server.wait.exitstatus, server.processes]).to eq([200, 0, []])
  end

  # Whether the old master has begun to stop.
  def refused_usr2?(server)
    usr2(server)
    server.log.include?("USR2 is ignored: the server is stopping")
  end

  it "B-faults QUIT during USR2 ends the old master; clients wait for the new one" do
    server = start
    booting(server)
    server.signal(:QUIT)
    expect(server.wait.exitstatus).to eq(0)
    clients = Array.new(3) { TCPSocket.new("127.0.0.1", server.port).tap { |socket| socket.write("GET / HTTP/1.0\r\n\r\n") } }
    server.write("go", "")
    expect(clients.map { |client| HttpResponse.parse(client.read).body }).to all(start_with("v2 "))
    await_processes(server, 3)
  end

  it "B-faults HUP, TTIN and USR1 to the old master while the new one boots do what they always do" do
    server = start
    unnoticed(server) do
      booting(server)
      server.signal(:HUP)
      server.await_ready(2)
      server.signal(:TTIN)
      server.await_log("TTIN: changing to 3 workers")
      server.signal(:USR1)
      server.write("go", "")
      taken_over(server)
    end
    await_processes(server, 3)
  end

  { "" => false, " while the new one boots" => true }.each do |at, boots|
    it "B-faults kill -9 of both masters#{at} leaves no process" do
      server = boots ? start : start_both
      second = boots ? booting(server) : server.master
      [second, server.pid].each { |pid| server.signal(:KILL, to: pid) }
      await_processes(server, 0)
    end
  end

  it "B-faults kill -9 of the old master while the new one boots: the new one takes over" do
    server = start(options: { Pid: "app.pid" })
    booting(server)
    server.signal(:KILL)
    server.write("go", "")
    server.await_ready(2)
    await_processes(server, 3)
    expect([server.get.body, pid_in(server)]).to match([start_with("v2 "), server.master])
    eventually { server.lines_of("app.pid.oldbin").empty? }
  end

  it "B-faults kill -9 of the new master, once both serve: the old one carries on" do
    server = start_both(options: { Pid: "app.pid" })
    server.signal(:KILL, to: server.master)
    server.await_log("was killed by SIGKILL; this one carries on")
    await_processes(server, 3)
    expect([pid_in(server), server.get.body]).to eq([server.pid, "v1 #{server.pid}"])
  end

  it "B-faults a pid file that cannot be renamed keeps the old one" do
    path = File.join(@dir, "app.pid")
    server = start(options: { Pid: path })
    FileUtils.mkdir("#{path}.oldbin")
    usr2(server)
    server.await_log(/^fastrack: cannot start a new master, this one carries on: Is a directory/)
    expect([File.read(path).to_i, server.get.status]).to eq([server.pid, 200])
    FileUtils.rmdir("#{path}.oldbin")
    replace_master(server)
    expect(File.read(path).to_i).to eq(server.master)
  end
end
