# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/command_folder"

# Where nothing names the server: no pid file, no socket, no ConfigFile.
RSpec.describe "Commands for the server of the folder", linux: "it is found by /proc", once: "processes and their titles" do
  include CommandFolder

  # A server without a pid file, whose master and worker have their titles.
  def running(*arguments)
    ready("-b", "127.0.0.1:0", "-w", "1", *arguments).tap do |server|
      eventually { server.workers.all? { |pid| ProcessTable.title(pid).start_with?("fastrack worker[") } }
    end
  end

  # What `status` says, once that is so: the monitor may learn a moment later than the log that the server is ready.
  def expect_status(*arguments, text)
    output = nil
    eventually(Server::DEADLINE, -> { output }) { (output = fastrack("status", *arguments)).last.zero? && output.first.match?(text) }
  end

  # A process that is no server and says that it is one.
  def impostor(user)
    script = "Process::Sys.setgid(#{user}); Process::Sys.setuid(#{user}); Process.setproctitle('fastrack master'); sleep"
    spawn(RbConfig.ruby, "-e", script, chdir: @dir).tap { |pid| eventually { ProcessTable.title(pid) == "fastrack master" } }
  end

  it "find it without a pid file: status, workers +1, restart, stop" do
    server = running
    expect_status(/^Fastrack \S+  pid #{server.master}  serving  .*^ +0 +#{server.workers.first} /m)
    fastrack("workers", "+1")
    server.await_workers(2)
    old = server.master
    fastrack("restart")
    eventually { server.master != old && !ProcessTable.alive?(old) }
    expect_status(/^Fastrack \S+  pid #{server.master}  serving/)
    expect([fastrack("stop").last, server.processes]).to eq([0, []])
  end

  it "find the new master, too, while the old one has a request to finish" do
    write("config.ru", Rackups::GATE)
    server = running("-O", "GracefulTimeout=600")
    slow = Thread.new { server.get("/slow") }
    eventually { lines("started").any? }
    expect(fastrack("restart")).to match([/^ready in/, 0])
    expect_status(/^Fastrack \S+  pid #{server.master}  serving/)
    expect([ProcessTable.alive?(server.pid), server.master == server.pid]).to eq([true, false])
    write("go", "")
    expect([fastrack("stop").last, slow.value.status, server.processes]).to eq([0, 200, []])
  end

  it "find the one whose title has a tag, in working_directory" do
    write("app/config.ru", Rackups::PID)
    write("puma.rb", "directory File.join(__dir__, 'app')\ntag 'shop'\nworkers 1")
    server = running("-C", "puma.rb")
    expect_status("-C", "puma.rb", /^Fastrack \S+  pid #{server.master}  serving/)
  end

  it "find the server that -P names, whatever the ConfigFile of the folder says, or raises" do
    server = running("-P", path("app.pid"))
    write("config/fastrack.rb", "ENV.fetch('NO_SUCH_VARIABLE')")
    expect_status("-P", "app.pid", /\bserving\b/)
    write("config/fastrack.rb", "control_path 'other.control'\nworking_directory '/'\npid 'other.pid'")
    expect_status("-P", "app.pid", /\bserving\b/)
    expect(fastrack("stop", "-P", "app.pid").last).to eq(0)
    expect(server.wait.exitstatus).to eq(0)
  end

  it "find none in another folder, nor where the configuration names another one" do
    running
    write("other/config.ru", Rackups::PID)
    expect(fastrack("status", "-O", "WorkingDirectory=other")).to match([/\Afastrack: no server found: .* none of this user's runs in other$/, 1])
    expect(fastrack("stop", "-P", "other.pid")).to match([/\Afastrack: no server runs: nobody listens at/, 1])
  end

  it "choose none of several" do
    pids = [running, running].map(&:master).sort
    expect(fastrack("stop")).to match([/\Afastrack: several servers run in \S+ \(pids #{pids.join(", ")}\): name one by -P/, 1])
  end

  it "leave other users' processes alone, whatever they call themselves" do
    skip "only root has other users' processes" unless Process.euid.zero?

    File.chmod(0o755, @dir)
    pid = impostor(65_534)
    expect([fastrack("stop"), Process.wait(pid, Process::WNOHANG)]).to match([[/\Afastrack: no server found: /, 1], nil])
  ensure
    pid && Process.kill(:KILL, pid) && Process.wait(pid)
  end

  it "find root the server of the user whose folder it is" do
    skip "only root can be another user" unless Process.euid.zero? && system("setpriv", "--version", out: File::NULL)

    File.chown(65_534, 65_534, @dir)
    server = Server.ready(ru: "", command: ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *in_folder("-b", "127.0.0.1:0", "-w", "1")])
    expect_status(/^Fastrack \S+  pid #{server.master}  serving/)
    expect([fastrack("restart"), fastrack("stop")]).to match([[/^ready in/, 0], [/^stopped in/, 0]])
    expect(server.processes).to be_empty
  end

  it "are not for a server in a folder that is called `app (deleted)`, beside app" do
    write("app (deleted)/config.ru", Rackups::PID)
    FileUtils.mkdir(path("app"))
    server = running("-O", "WorkingDirectory=app (deleted)")
    expect(fastrack("stop", "-O", "WorkingDirectory=app").first).to start_with("fastrack: no server found: ")
    FileUtils.mv(path("app (deleted)"), path("old"))
    FileUtils.mv(path("app"), path("app (deleted)"))
    expect_status("-O", "WorkingDirectory=old", /  pid #{server.master}  /)
  end

  # What Puma's and Rails' users have there, and a container's pid that is another process's here.
  it "are not for a process that only a pid file names" do
    other = spawn("sleep", "600")
    [other, 1].each do |pid|
      write("tmp/pids/server.pid", "#{pid}\n")
      place = %w[-P tmp/pids/server.pid]
      [%w[stop], %w[restart], %w[status], ["stop", *place], ["restart", *place], ["reload", *place], ["status", *place], ["workers", "+1", *place]].each do |words|
        expect(fastrack(*words)).to match([%r{\Afastrack: no server runs: .*tmp/pids/server\.pid has no running process$}, 1])
      end
    end
    expect(Process.wait(other, Process::WNOHANG)).to be_nil
  ensure
    other && Process.kill(:KILL, other) && Process.wait(other)
  end

  it "are not for a process that calls itself a master, and is younger than the pid file that names it" do
    pid = impostor(Process.euid)
    write("app.pid", "#{pid}\n")
    File.utime(Time.now - 3600, Time.now - 3600, path("app.pid"))
    expect([fastrack("stop", "-P", "app.pid"), Process.wait(pid, Process::WNOHANG)]).to match([[/\Afastrack: no server runs: /, 1], nil])
  ensure
    pid && Process.kill(:KILL, pid) && Process.wait(pid)
  end
end
