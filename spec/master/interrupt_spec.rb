# frozen_string_literal: true

require_relative "../spec_helper"
require "io/console"
require "pty"
require "tmpdir"

RSpec.describe "C1 INT" do
  def start(**keywords)
    Server.start(ru: Rackups::GATE, options: { MaxWorkers: 2, MaxRequestPerChild: 0 }, **keywords).tap { |server| await_line(server, "Fastrack is ready") }
  end

  def await_line(server, text)
    eventually(20, -> { server.log }) { server.log.match?(text) }
  end

  # As a terminal sends it, to all processes of the job.
  def interrupt_all(server)
    Process.kill(:INT, -server.pid)
  end

  it "is graceful in production, also where all processes get it: requests finish, and the status is 0" do
    server = start
    request = SlowRequest.new(server)
    interrupt_all(server)
    eventually { server.workers == [request.pid] }
    expect(request.finish.body.to_i).to eq(request.pid)
    expect(server.wait.exitstatus).to eq(0)
    expect(server.processes).to be_empty
    expect(server.log).not_to match(/killed|exited/)
  end

  it "is quick the second time, and the log says that it was the master that has killed a worker, and why" do
    server = start
    request = SlowRequest.new(server)
    interrupt_all(server)
    eventually { server.workers == [request.pid] }
    server.signal(:INT)
    expect(server.wait.exitstatus).to eq(0)
    expect(server.log).to match(%r{^fastrack: worker \d \(pid #{request.pid}\) was killed by the master \(quick shutdown\) while serving GET /slow for \d+\.\d s$})
    expect(server.log).not_to include("SIGKILL")
  ensure
    request&.abandon
  end

  it "is the first one after TERM, too, as plugins send it when their processes have ended by that TERM" do
    server = start
    request = SlowRequest.new(server)
    server.signal(:TERM)
    eventually { server.workers == [request.pid] }
    server.signal(:INT)
    # It has been handled when what comes later has been.
    server.signal(:HUP)
    await_line(server, "HUP is ignored: the server is stopping")
    expect(request.finish.status).to eq(200)
    expect(server.wait.exitstatus).to eq(0)
  end

  it "is quick at once in development" do
    server = start(environment: "development")
    request = SlowRequest.new(server)
    interrupt_all(server)
    expect(server.wait.exitstatus).to eq(0)
    expect(server.processes).to be_empty
  ensure
    request&.abandon
  end

  it "by Ctrl-C at a terminal lets requests finish in production" do
    Dir.mktmpdir do |dir|
      File.write(File.join(dir, "config.ru"), Rackups::GATE)
      command = [RbConfig.ruby, Server::COMMAND, "-E", "production", "-b", "app.sock", "-w", "2"]
      PTY.spawn(Server::CLEAN_ENVIRONMENT, *command, chdir: dir) do |terminal, keys, pid|
        drain = Thread.new { loop { terminal.readpartial(4096) } rescue nil }
        client = eventually(20) { ask(dir) }
        eventually(20) { File.exist?(File.join(dir, "started")) }
        keys.write("\x03")
        eventually { ProcessTable.children(pid).one? }
        File.write(File.join(dir, "go"), "")
        expect(client.read).to start_with("HTTP/1.1 200")
        eventually { !ProcessTable.alive?(pid) }
      ensure
        drain.kill
      end
    end
  end

  def ask(dir)
    UNIXSocket.new(File.join(dir, "app.sock")).tap { |socket| socket.write("GET /slow HTTP/1.0\r\n\r\n") }
  rescue SystemCallError
    nil
  end

  it "does not cut off at_exit hooks where it is the first one" do
    app = "at_exit { File.write('hook', ''); sleep 0.01 until File.exist?('go'); File.write('over', '') }\n#{Rackups::PID}"
    app = "MASTER = Process.pid\n#{app.sub("at_exit {", "at_exit { next unless Process.pid == MASTER; ")}"
    server = Server.start(ru: app, options: { MaxWorkers: 1 }, fastrack: true)
    await_line(server, "Fastrack is ready")
    server.signal(:TERM)
    eventually { File.exist?(File.join(server.dir, "hook")) }
    server.signal(:INT)
    server.write("go", "")
    expect(server.wait.exitstatus).to eq(0)
    expect(File).to exist(File.join(server.dir, "over"))
  end

  # A plugin that does what Solid Queue's does when its process has ended.
  describe "of a plugin" do
    let(:server) do
      Server.start(ru: Rackups::GATE, env: { "RUBYLIB" => "lib" }, command: ["sh", "-c", <<~SH])
        mkdir -p lib/puma/plugin
        cat >lib/puma/plugin/watcher.rb <<'END'
        require "puma/plugin"
        Puma::Plugin.create do
          def start(launcher)
            in_background do
              sleep 0.01 until File.exist?("dead")
              Process.kill(:INT, $$)
              File.write("told", "")
            end
          end
        end
        END
        printf 'bind "tcp://127.0.0.1:0"\\nworkers 2\\nplugin :watcher' >puma.rb
        exec #{RbConfig.ruby} -w #{Server::COMMAND} -C puma.rb -E production
      SH
    end

    [false, true].each do |before|
      it "cuts no request off#{", where all processes have got an INT before" if before}" do
        await_line(server, "Fastrack is ready")
        request = SlowRequest.new(server)
        interrupt_all(server) if before
        server.write("dead", "")
        eventually { File.exist?(File.join(server.dir, "told")) && server.workers == [request.pid] }
        server.signal(:HUP)
        await_line(server, "HUP is ignored: the server is stopping")
        expect(request.finish.status).to eq(200)
        expect(server.wait.exitstatus).to eq(0)
      end
    end
  end

  # What the master kills, and what the log says of it. Who sees SIGKILL there looks for a lack of memory.
  describe "A worker that the master kills" do
    { "WorkerTimeout" => [{ WorkerTimeout: 0.5 }, ->(server, pid) { server.signal(:STOP, to: pid) }],
      "GracefulTimeout" => [{ GracefulTimeout: 0.1 }, ->(server, pid) { server.signal(:STOP, to: pid) && server.signal(:HUP) }] }
      .each do |why, (options, act)|
      it "is said to be killed by it, because of #{why}" do
        server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 1, **options })
        await_line(server, "Fastrack is ready")
        pid = server.workers.first
        act.call(server, pid)
        await_line(server, /^fastrack: worker 0 \(pid #{pid}\) was killed by the master \(#{why}\)$/)
        expect(server.log).not_to include("SIGKILL")
      end
    end

    it "is said to be killed by it, because of WorkerBootTimeout" do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 1, WorkerBootTimeout: 0.5 }, config: "after_fork { sleep }")
      await_line(server, /^fastrack: worker 0 \(pid \d+\) was killed by the master \(WorkerBootTimeout\)$/)
      expect(server.log).not_to include("SIGKILL")
    end

    it "is said to be killed by it when the server stops, because of GracefulTimeout" do
      server = Server.start(ru: Rackups::GATE, options: { MaxWorkers: 1, GracefulTimeout: 0.1 })
      request = SlowRequest.new(server)
      server.stop
      expect(server.log).to match(%r{^fastrack: worker 0 \(pid #{request.pid}\) was killed by the master \(GracefulTimeout\) while serving GET /slow})
      expect(server.log).not_to include("SIGKILL")
    ensure
      request&.abandon
    end
  end
end
