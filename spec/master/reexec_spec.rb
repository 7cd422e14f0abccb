# frozen_string_literal: true

RSpec.describe "A new master (USR2)", exec: "its start command", once: "processes, signals and sockets" do
  include Folder
  include ReexecHelpers

  { "a port" => false, "a path" => true }.each do |what, unix|
    it "C1 takes over with new code, on #{what}, and no client notices" do
      server = start(unix: unix)
      answers = unnoticed(server) do |clients|
        server.write("config.ru", app("v2"))
        replace_master(server)
        clients.news
        clients.await_answers
        expect(clients.news.last).to eq("v2 #{server.master}")
      end
      expect(answers.uniq).to contain_exactly("v1 #{server.pid}", "v2 #{server.master}")
      await_processes(server, 3)
    end
  end

  it "C1 reads the ConfigFile anew: addresses that stay are taken over, new ones opened, the others let go of" do
    paths = %w[a b c].map { |name| File.join(@dir, name) }
    config = ->(*listens) { listens.map { |path| "listen #{path.inspect}\n" }.join }
    server = Server.launch(ru: app("v1"), options: { MaxWorkers: 1, Host: nil, Port: nil }, config: config.call(*paths.first(2)))
    server.await_ready
    inode = File.stat(paths[0]).ino
    server.write("fastrack.rb", config.call(paths[0], paths[2]))
    replace_master(server)
    expect(File.stat(paths[0]).ino).to eq(inode)
    expect(server.log).to include("fastrack: no longer listening on :unix:#{paths[1]}\n")
    served = paths.map do |path|
      UNIXSocket.open(path) do |socket|
        socket.write("GET / HTTP/1.0\r\n\r\n")
        socket.wait_readable(GcMode.patient(20)) ? HttpResponse.parse(socket.read).status : :silent
      end
    rescue Errno::ENOENT
      :removed
    end
    expect(served).to eq([200, :removed, 200])
  end

  it "C1 is refused under start_server, which would take it for a crash" do
    TCPServer.open("127.0.0.1", 0) do |socket|
      server = Server.start(ru: app("v1"), options: { MaxWorkers: 1, Host: nil, Port: nil }, inherit: { 10 => socket },
                            env: { "SERVER_STARTER_PORT" => "127.0.0.1:#{socket.addr[1]}=10" })
      usr2(server)
      server.await_log("USR2 is ignored: send HUP to start_server instead")
      expect(server.get.status).to eq(200)
    end
  end

  it "C1 finishes a request that the old master's worker is at" do
    server = start(ru: Rackups::GATE)
    request = SlowRequest.new(server)
    usr2(server)
    server.await_ready(2)
    expect([server.ended?, request.finish.body.to_i]).to eq([false, request.pid])
    taken_over(server)
  end

  it "C1 hands over the sockets, and no other descriptor" do
    File.open("/dev/zero") do |file|
      server = start(inherit: { 9 => file })
      expect(ProcessTable.descriptors(server.pid).values).to include("/dev/zero")
      replace_master(server)
      expect(ProcessTable.descriptors(server.master).values).not_to include("/dev/zero")
      expect(server.get.status).to eq(200)
    end
  end

  describe "starts the server as it was started" do
    it "C1 with its command line, its folder and its environment, whatever has become of them since" do
      server = start(arguments: ["--quiet", "-I", "with spaces/and 'quotes'"], env: { "GIVEN" => "yes" }, config: <<~'RUBY')
        ENV["GIVEN"] = "changed"
        ENV["ADDED"] = "yes"
        Dir.chdir("/")
      RUBY
      server.write("config.ru", <<~'RUBY')
        seen = [ENV["GIVEN"], ENV["ADDED"], $LOAD_PATH.include?("with spaces/and 'quotes'"), ENV.keys.grep(/FASTRACK/)]
        run ->(_env) { [200, {}, [seen.inspect]] }
      RUBY
      replace_master(server)
      # The ConfigFile is read after config.ru; the variables that are for the server are still there by then.
      expect(server.get.body).to start_with('["yes", nil, true, ')
      environ = File.binread("/proc/#{server.workers.first}/environ")
      expect(environ).not_to include("ADDED")
    end

    it "C1 by before_exec, whose environment it gets" do
      server = start(config: <<~'RUBY')
        before_exec { |server| ENV["FROM_HOOK"] = "#{server.worker_processes} #{Process.ppid}" }
      RUBY
      server.write("config.ru", 'run ->(_env) { [200, {}, [ENV["FROM_HOOK"]]] }')
      replace_master(server)
      expect(server.get.body).to eq("2 #{server.pid}")
    end
  end

  describe "the pid file" do
    it "C1 has the new master's pid, and meanwhile the old one's is in app.pid.oldbin" do
      server = start(fastrack: true, config: <<~'RUBY', options: { Pid: "app.pid" })
        before_fork { sleep 0.01 until !File.exist?("app.pid.oldbin") || File.exist?("go") }
      RUBY
      expect(pid_in(server)).to eq(server.pid)
      usr2(server)
      eventually { server.master != server.pid && pid_in(server) == server.master }
      expect(pid_in(server, "app.pid.oldbin")).to eq(server.pid)
      server.write("go", "")
      taken_over(server)
      expect([pid_in(server), server.lines_of("app.pid.oldbin")]).to eq([server.master, []])
      server.signal(:TERM, to: server.master)
      await_processes(server, 0)
      expect(server.lines_of("app.pid")).to eq([])
    end

    it "C1 is kept right where rackup writes and removes it (--pid)" do
      server = start(arguments: ["--pid", "app.pid"])
      2.times do |index|
        old = server.master
        usr2(server, to: pid_in(server))
        eventually { server.master != old && !ProcessTable.alive?(old) }
        # Until it knows of that, it refuses another USR2.
        server.await_log("the old master has ended", index + 1)
        eventually { pid_in(server) == server.master }
      end
      expect(server.lines_of("app.pid.oldbin")).to eq([])
      server.signal(:TERM, to: server.master)
      await_processes(server, 0)
      expect(server.file?("app.pid")).to be(false)
    end
  end

  describe "AutoQuit=false" do
    it "C1 both serve until somebody ends the old one" do
      server = start(options: { AutoQuit: false })
      bodies = unnoticed(server) do
        usr2(server)
        server.await_log("is ready", 3)
        await_processes(server, 6)
        expect(server.ended?).to be(false)
        eventually { server.get.body == "v1 #{server.master}" }
        server.signal(:QUIT)
        taken_over(server)
      end
      expect(bodies.uniq.size).to eq(2)
      await_processes(server, 3)
    end

    # The old one's workers are sent away, and then the new master with its own.
    def go_back(server)
      usr2(server)
      server.await_log("is ready", 3)
      server.signal(:WINCH)
      await_processes(server, 4)
      server.signal(:QUIT, to: server.master)
      server.await_log("exited with status 0; this one carries on")
    end

    it "C1 goes back to the old one when the new one is ended, with the workers that had been sent away" do
      server = start(options: { AutoQuit: false, Pid: "app.pid" })
      unnoticed(server) do
        go_back(server)
        await_processes(server, 3)
      end
      expect([pid_in(server), ProcessTable.workers(server.pid).size]).to eq([server.pid, 2])
    end

    # The kernel closes its channel a moment before, and nothing else may ever happen that would have the old one look again.
    it "C1 goes back to the old one though the new one's process ends just after it was looked for" do
      server = start(options: { AutoQuit: false }, config: <<~'RUBY')
        Fastrack::NewMaster.prepend(Module.new do
          def gone?
            return super if @late || !channel.closed?

            @late = File.write("late", "")
            Thread.pass until File.read("/proc/#{pid}/stat").include?(") Z ")
            false
          end
        end)
      RUBY
      go_back(server)
      # The code above has run in the master.
      expect(File.exist?(server.file("late"))).to be(true)
    end
  end
end
