# frozen_string_literal: true

RSpec.describe "C1 INT" do
  # A server with a request in its app, and whose other worker has gone after that.
  def busy_after
    server = Server.ready(ru: Rackups::GATE, options: { MaxWorkers: 2, MaxRequestPerChild: 0 })
    request = SlowRequest.new(server)
    yield server
    eventually { server.workers == [request.pid] }
    [server, request]
  end

  # As a terminal sends it, to all processes of the job.
  def interrupt_all(server) = Process.kill(:INT, -server.pid)

  it "is graceful in production, also where all processes get it: requests finish, and the status is 0" do
    server, request = busy_after { |started| interrupt_all(started) }
    expect([request.finish.body.to_i, server.wait.exitstatus, server.processes]).to eq([request.pid, 0, []])
    expect(server.log).not_to match(/killed|exited/)
  end

  it "is quick the second time, and the log says that it was the master that has killed a worker, and why" do
    server, request = busy_after { |started| interrupt_all(started) }
    server.signal(:INT)
    expect(server.wait.exitstatus).to eq(0)
    expect(server.log).to match(%r{^fastrack: worker \d \(pid #{request.pid}\) was killed by the master \(quick shutdown\) while serving GET /slow for \d+\.\d s$})
    expect(server.log).not_to include("SIGKILL")
  end

  it "is the first one after TERM, too, as plugins send it when their processes have ended by that TERM" do
    server, request = busy_after { |started| started.signal(:TERM) }
    server.signal(:INT)
    # It has been handled when what comes later has been.
    server.signal(:HUP)
    server.await_log("HUP is ignored: the server is stopping")
    expect([request.finish.status, server.wait.exitstatus]).to eq([200, 0])
  end

  # A plugin that does what Solid Queue's does when its process has ended.
  it "of a plugin cuts no request off, where all processes have got an INT before" do
    files = { "puma.rb" => "bind 'tcp://127.0.0.1:0'\nworkers 2\nplugin :watcher", "lib/puma/plugin/watcher.rb" => <<~RUBY }
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
    RUBY
    server = Server.ready(ru: Rackups::GATE, env: { "RUBYLIB" => "lib" }, files: files,
                          command: [RbConfig.ruby, "-w", Server::COMMAND, "-C", "puma.rb", "-E", "production"])
    request = SlowRequest.new(server)
    interrupt_all(server)
    server.write("dead", "")
    eventually { server.file?("told") && server.workers == [request.pid] }
    server.signal(:HUP)
    server.await_log("HUP is ignored: the server is stopping")
    expect([request.finish.status, server.wait.exitstatus]).to eq([200, 0])
  end
end
