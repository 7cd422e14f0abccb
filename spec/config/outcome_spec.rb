# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/command_folder"

RSpec.describe "What comes of a restart, a reload or a stop", linux: "there is a monitor", once: "processes and what their monitor tells" do
  include CommandFolder

  # Answers with a version.
  def version(text) = write("config.ru", "run ->(_env) { [200, {}, ['#{text}']] }")

  def running(*arguments)
    version("old")
    ready("-b", "127.0.0.1:0", "-w", "1", *arguments)
  end

  # A server whose output nobody but this process can read.
  def piped(*arguments)
    version("old")
    reader, writer = IO.pipe
    command = [RbConfig.ruby, "-w", Server::COMMAND, "-b", "app.sock", "-w", "1", *arguments]
    pid = spawn(Server::CLEAN_ENVIRONMENT, *command, chdir: @dir, in: File::NULL, out: writer, err: writer, pgroup: true)
    writer.close
    Thread.new { IO.copy_stream(reader, path("piped.log")) }
    eventually { File.exist?(path("piped.log")) && File.read(path("piped.log")).include?("is ready") }
    yield pid
  ensure
    pid && Process.kill(:TERM, -pid)
    eventually { ProcessTable.group(pid).empty? || !Process.wait(pid, Process::WNOHANG).nil? }
  end

  def ask = HttpResponse.ask(UNIXSocket.new(path("app.sock"))).body

  it "is told by `fastrack restart` once the new code serves, and how long that took" do
    server = running
    version("new")
    output, status = fastrack("restart")
    expect([output, status]).to match([/\AUSR2 sent to #{server.pid}\nready in \d+\.\d s\n\z/, 0])
    # Its worker may still take a client.
    server.wait
    expect(server.get.body).to eq("new")
  end

  it "is told by `fastrack restart` with status 1 and the exception where the new code does not boot" do
    server = running
    write("config.ru", "raise 'no luck'")
    output, status = fastrack("restart")
    expect([output, status]).to match([/^fastrack: USR2 has failed: the old code serves on \(pid #{server.pid}\): the new master \(pid \d+\) exited with status 1 before it was ready: .*: no luck \(RuntimeError\)$/, 1])
    expect(server.get.body).to eq("old")
  end

  it "is told by `fastrack restart` without a log, too" do
    piped do |pid|
      version("new")
      expect(fastrack("restart")).to match([/\nready in \d+\.\d s\n\z/, 0])
      eventually { !ProcessTable.alive?(pid) }
      expect(ask).to eq("new")
      write("config.ru", "raise 'no luck'")
      expect(fastrack("restart")).to match([/USR2 has failed: the old code serves on \(pid (?!#{pid}\))\d+\): .*: no luck \(RuntimeError\)$/, 1])
      expect(ask).to eq("new")
    end
  end

  it "is told by `fastrack reload`: that the new workers serve, or that the ConfigFile is wrong" do
    write("config/fastrack.rb", "preload_app false")
    server = running
    version("new")
    expect(fastrack("reload")).to match([/\AHUP sent to #{server.pid}\nready in \d+\.\d s\n\z/, 0])
    # The old worker may still take a client.
    server.await_workers(1)
    expect(server.get.body).to eq("new")
    write("config/fastrack.rb", "raise 'no luck' unless $PROGRAM_NAME.end_with?('fastrack') && ARGV.first == 'reload'\npreload_app false")
    expect(fastrack("reload")).to match([/HUP has failed: the old code serves on .*: ConfigFile config\/fastrack\.rb:1: no luck/, 1])
  end

  it "is told by `fastrack reload` with status 1 where new workers do not boot, with a log or without" do
    server = running("-O", "PreloadApp=false")
    write("config.ru", "raise 'no luck'")
    expect(fastrack("reload", "-O", "PreloadApp=false")).to match([/HUP has failed: the old code serves on .*worker 0 \(pid \d+\) exited with status 1 before it was ready: no luck \(RuntimeError\)$/, 1])
    expect(server.get.body).to eq("old")
    server.stop
    piped("-O", "PreloadApp=false") do
      write("config.ru", "raise 'no luck'")
      expect(fastrack("reload", "-O", "PreloadApp=false")).to match([/HUP has failed: the old code serves on .*: no luck \(RuntimeError\)$/, 1])
    end
  end

  it "is not waited for with --no-wait" do
    write("config.ru", Rackups::GATE)
    server = ready("-b", "127.0.0.1:0", "-w", "1")
    write("config.ru", "raise 'no luck'")
    expect(fastrack("restart", "--no-wait")).to eq(["USR2 sent to #{server.pid}; see the server's log for the result\n", 0])
    server.await_log("this one carries on")
    slow = Thread.new { server.get("/slow") }
    eventually { lines("started").any? }
    expect(fastrack("stop", "--no-wait")).to eq(["TERM sent to #{server.pid}; see the server's log for the result\n", 0])
    expect(slow).to be_alive
    write("go", "")
    slow.join
  end

  # How the command has ended, and how many processes of the server were left then.
  def stopped(server, *arguments) = [*fastrack("stop", *arguments), server.processes.size]

  it "is told by `fastrack stop` when the last request has ended and all processes are gone" do
    write("config.ru", Rackups::GATE)
    server = ready("-b", "127.0.0.1:0", "-w", "2")
    slow = Thread.new { server.get("/slow") }
    eventually { lines("started").any? }
    result = Thread.new { stopped(server) }
    server.await_log("TERM: stopping")
    expect(result).to be_alive
    write("go", "")
    expect(result.value).to match([/\ATERM sent to #{server.master}\nstopped in \d+\.\d s\n\z/, 0, 0])
    expect(slow.value.status).to eq(200)
  end

  it "is told by `fastrack stop` of a server that its pid file or its socket names, from another container, too" do
    expect(stopped(running("-P", "app.pid"), "-P", "app.pid")).to match([/^stopped in /, 0, 0])
    server = running("--control", "app.socket")
    sidecar = %w[unshare --pid --fork --mount-proc]
    skip "a container takes root's rights" unless system(*sidecar, "true", err: File::NULL)

    eventually { File.socket?(path("app.socket")) }
    expect([IO.popen([*sidecar, RbConfig.ruby, Server::COMMAND, "stop", "--control", path("app.socket")], &:read), server.workers])
      .to match([/^stopped in /, []])
  end

  it "is told by `fastrack status`, restart and stop of a server in a container whose socket is in a folder that both have" do
    container = %w[unshare --pid --fork --kill-child --mount-proc]
    skip "a container takes root's rights" unless system(*container, "true", err: File::NULL)

    version("old")
    server = serve("-b", "app.sock", "-w", "1", "--control", "app.socket", wrapper: container).await_ready
    place = %w[--control app.socket]
    eventually { fastrack("status", *place).then { |output, status| status.zero? && output.match?(/  pid \d+  serving  /) } }
    expect([fastrack("reload", *place), fastrack("stop", *place)]).to match([[/^ready in/, 0], [/^stopped in/, 0]])
    # Only its monitor is seen from here, which ends first.
    eventually { ProcessTable.children(server.pid).empty? }
  end

  it "is told by `fastrack stop` with status 1 and what still runs, when that outlasts the server's own limits" do
    # With a logger the master reads the file, too, as the command does.
    write("config/fastrack.rb", "require 'logger'\nlogger Logger.new(nil)\nat_exit { sleep if Fastrack.scoreboard&.last == Process.pid }")
    write("config.ru", Rackups::PID)
    server = ready(*%w[-b 127.0.0.1:0 -w 1 -P app.pid -O GracefulTimeout=0])
    eventually { File.socket?(path("app.control")) }
    expect(fastrack("stop", "-P", "app.pid")).to match([/^fastrack: TERM has failed: it still runs \(fastrack master, pid #{server.pid}\) after 5 s$/, 1])
    eventually { server.processes == [server.pid] }
  ensure
    server.signal(:KILL)
  end

  # The recipe of Unicorn's users: the new master's first fork ends the old one.
  recipe = <<~'RUBY'
    worker_processes 1
    pid "app.pid"
    err_respawn_interval 0.05
    before_fork do |server, _worker|
      old = "#{server.pid}.oldbin"
      Process.kill(:QUIT, File.read(old).to_i) if File.exist?(old)
    end
  RUBY

  it "is told by `fastrack restart` where the new master itself ends the old one: it waits for the new workers" do
    write("unicorn.rb", recipe)
    version("old")
    ready("-b", "127.0.0.1:0", "-c", "unicorn.rb").then do |server|
      write("unicorn.rb", "#{recipe}after_fork { sleep 0.01 until File.exist?('#{path("go")}') }")
      version("new")
      restart = Thread.new { fastrack("restart", "-c", "unicorn.rb") }
      # The old master is gone, and nobody serves yet.
      eventually { !ProcessTable.alive?(server.pid) && fastrack("status", "-c", "unicorn.rb").first.include?("booting") }
      expect(restart).to be_alive
      write("go", "")
      expect(restart.value).to match([/^ready in/, 0])
      expect(server.get.body).to eq("new")
    end
  end

  it "is told by `fastrack restart` with status 1 where the new master ends the old one, and its workers fail: nobody serves" do
    write("unicorn.rb", recipe)
    running("-c", "unicorn.rb")
    write("unicorn.rb", "#{recipe}after_fork { raise 'no luck' }")
    expect(fastrack("restart", "-c", "unicorn.rb")).to match([/^fastrack: USR2 has failed: the server is gone/, 1])
    expect(fastrack("status", "-c", "unicorn.rb").last).to eq(1)
  end

  it "is told by each of two `fastrack restart`: the one right behind the other comes to nothing" do
    write("config.ru", Rackups::GATE)
    server = ready("-b", "127.0.0.1:0", "-w", "1", "-P", "app.pid")
    slow = Thread.new { server.get("/slow") }
    eventually { lines("started").any? }
    expect(fastrack("restart", "-P", "app.pid")).to match([/^ready in/, 0])
    write("config.ru", "raise 'no luck'")
    expect(fastrack("restart", "-P", "app.pid")).to match([/^fastrack: USR2 has failed: the old code serves on \(pid (?!#{server.pid}\)).*: the old master is still running$/, 1])
    write("go", "")
    expect(slow.value.status).to eq(200)
  end

  it "is that nobody serves, say status, /status.json, /readyz and the exit status alike, when no worker is ready" do
    server = running("-P", "app.pid", "-O", "PreloadApp=false", "-w", "2")
    monitor = MonitorClient.new(path("app.control"))
    monitor.await { |status| status["serves"] && status["workers_ready"] == 2 }
    write("config.ru", "raise 'no luck'")
    server.workers.each { |pid| server.signal(:KILL, to: pid) }
    monitor.await { |status| !status["serves"] }
    expect(fastrack("status", "-P", "app.pid")).to match([/  down  .*^workers \d of 2/m, 1])
    expect([monitor.get("/readyz").status, monitor.status["phase"]]).to eq([503, "down"])
  end

  describe "of a server without a monitor" do
    def alone(*arguments)
      running("-P", "app.pid", "--control", "none", *arguments)
    end

    it "is not to be had: status, restart and reload say so with status 1, and nothing is sent without --no-wait" do
      server = alone
      place = %w[-P app.pid --control none]
      expect(fastrack("status", *place)).to eq(["fastrack: process #{server.pid} is a master without a monitor, so its state is unknown: set pid or control_path\n", 1])
      %w[restart reload].each { |command| expect(fastrack(command, *place)).to match([/\Afastrack: process #{server.pid} is a master without a monitor, .* or add --no-wait$/, 1]) }
      version("new")
      expect(fastrack("restart", "--no-wait", *place)).to match([/\AUSR2 sent to #{server.pid}; see/, 0])
      expect(server.wait.exitstatus).to eq(0)
      expect(server.get.body).to eq("new")
    end

    it "is told of a stop, which is seen by its process" do
      expect(stopped(alone, *%w[-P app.pid --control none])).to match([/^stopped in/, 0, 0])
    end
  end
end
