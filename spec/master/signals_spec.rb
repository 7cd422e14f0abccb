# frozen_string_literal: true

require "io/console"
require "pty"

RSpec.describe "Signals", once: "processes and signals" do
  include ReexecHelpers

  def start(**options) = super(ru: Rackups::PID, options: options)

  it "C1 says that it is ready when after_fork has run in all workers, and not before" do
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 2 }, config: <<~RUBY)
      after_fork do |_server, worker|
        File.write("up", ".", mode: "a")
        sleep 0.01 until File.exist?("go\#{worker.nr}")
      end
    RUBY
    eventually { server.lines_of("up") == [".."] }
    server.write("go0", "")
    server.get
    expect(server.log).not_to include("Fastrack is ready")
    server.write("go1", "")
    server.await_log(/^Fastrack is ready Workers:2 Pid:#{server.pid}$/)
  end

  # A deploy tool that has read the pid file would end a master with them that does not hear them yet.
  it "C1 are heard from when the pid file is there, and acted on once the server is up" do
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 2, Pid: "app.pid" }, config: <<~'RUBY')
      Fastrack::Master.prepend(Module.new do
        def start_plugins
          %i[USR1 TTIN].each { |name| Process.kill(name, File.read("app.pid").to_i) }
          super
        end
      end)
    RUBY
    server.await_workers(3)
    expect(server.log).to include("TTIN: changing to 3 workers")
  end

  describe "HUP" do
    it "C1 recycles the workers with the ConfigFile as it is by then, and no client notices" do
      config = ->(workers, text) { "max_workers #{workers}\nafter_fork { $text = #{text.inspect} }" }
      server = Server.ready(ru: 'run ->(_env) { [200, {}, [$text]] }', config: config.call(2, "old"))
      before = server.workers
      unnoticed(server) do |clients|
        server.reload(config.call(3, "new"))
        server.await_log(/^Fastrack is ready Workers:3/)
        expect(clients.news).to include("old")
        server.await_workers(3) { |found| (found & before).empty? }
        clients.await_answers
        expect(clients.news.last).to eq("new")
      end
      server.await_workers(3)
      server.reload(config.call(1, "last"))
      server.await_log(/^Fastrack is ready Workers:1/)
      server.await_workers(1)
      expect(server.get.body).to eq("last")
    end

    describe "with a ConfigFile" do
      before(:context) { @server = Server.ready(ru: Rackups::PID, config: "max_workers 2\nmax_request_per_child 0") }

      { "that raises" => ["raise 'no such luck'", "no such luck (RuntimeError)"],
        "that has an ill-typed value" => ["max_workers :many", "max_workers must be a whole number, 1 or more; got :many"],
        "that does not compile" => ["max_workers (", "SyntaxError"],
        "that calls exit" => ["exit 3", "the ConfigFile calls exit"],
        "that names a user who does not exist for a socket" => ["listen '~nouser/x.sock'", "cannot listen on ~nouser/x.sock: user nouser doesn't exist"],
        "that names a user who does not exist for a log" => ["stderr_path '~nouser/x'", "must be a path; user nouser doesn't exist"],
        "that never ends" => ["def deep = deep\ndeep", "stack level too deep (SystemStackError)"],
        "that asks for too much memory" => ["raise NoMemoryError, 'no memory'", "no memory (NoMemoryError)"],
        "that raises what cannot be printed" => ["raise Class.new(Exception) { def message = raise('no') }", "#<Class:"],
        "that is gone" => [nil, "no such file or directory"] }.each do |what, (text, reason)|
        it "C1 #{what} keeps the old configuration and all workers, and says why" do
          before = @server.workers
          unnoticed(@server) do
            text ? @server.write("fastrack.rb", text) : @server.remove("fastrack.rb")
            @server.signal(:HUP)
            @server.await_log(/^fastrack: HUP changes nothing: .*#{Regexp.escape(reason)}/)
          end
          expect(@server.workers).to eq(before)
        end
      end

      it "C1 that has been mended is gone by" do
        @server.reload("max_workers 1")
        @server.await_log(/^Fastrack is ready Workers:1/).await_workers(1)
      end
    end
  end

  # What a terminal's end does to a server in it, seen from outside: its log is a file, as it outlives the terminal.
  describe "HUP, WINCH and the terminal" do
    # Starts the command in a terminal of its own. The block gets what closes that, its first process, what gives the log, and its screen.
    def in_terminal(command, directory = Dir.mktmpdir, ru: Rackups::PID)
      File.write(File.join(directory, "config.ru"), ru)
      log = -> { File.file?("#{directory}/log") ? File.read("#{directory}/log") : "" }
      reader, writer, pid = PTY.spawn(Server::CLEAN_ENVIRONMENT, "sh", "-c", command, chdir: directory)
      Process.detach(pid)
      eventually(20, log) { log.call.include?("Fastrack is ready") }
      yield -> { [reader, writer].each(&:close) }, pid, log, reader
    ensure
      master = log.call[/Pid:(\d+)/, 1]&.to_i
      [pid, master].compact.uniq.each do |one|
        Process.kill(:TERM, one) if ProcessTable.alive?(one)
      rescue Errno::ESRCH
        # It has just ended.
        nil
      end
      eventually { [pid, master].compact.none? { |one| ProcessTable.alive?(one) } }
      FileUtils.remove_entry(directory)
    end

    let(:server) { "#{RbConfig.ruby} #{Server::COMMAND} -b app.sock -w 1 >log 2>&1" }

    { "in the foreground" => ->(server) { "exec #{server}" }, "below a shell" => ->(server) { "#{server}; true" } }.each do |what, command|
      it "D8 ends a server #{what} whose terminal is closed, and it reloads while the terminal is there" do
        in_terminal(command.call(server)) do |close, _, log|
          master = log.call[/Pid:(\d+)/, 1].to_i
          Process.kill(:HUP, master)
          eventually(20, log) { log.call.scan("Fastrack is ready").size == 2 }
          close.call
          eventually(20, log) { !ProcessTable.alive?(master) }
          expect(log.call).to include("HUP: the terminal is closed, stopping")
        end
      end
    end

    { "development" => "sleep", "production" => "sleep 0.5; File.write('done', '')" }.each do |environment, work|
      it "D8 #{environment == "development" ? "ends at once" : "finishes requests"} in #{environment} when the terminal is closed" do
        ru = "run ->(_env) { File.write('begun', ''); #{work}; [200, {}, []] }"
        in_terminal("exec #{server.sub(" -b", " -E #{environment} -b")}", ru: ru) do |close, master, log|
          folder = File.readlink("/proc/#{master}/cwd")
          client = UNIXSocket.new("#{folder}/app.sock")
          client.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
          eventually(20, log) { File.exist?("#{folder}/begun") }
          close.call
          # Far less than GracefulTimeout, which is 30 s.
          eventually(10, log) { !ProcessTable.alive?(master) }
          expect(File.exist?("#{folder}/done")).to be(environment == "production")
        ensure
          client&.close
        end
      end
    end

    it "C1 WINCH changes nothing in the foreground of a terminal, which sends it when its window changes" do
      in_terminal("exec #{server}") do |_, pid, log, screen|
        workers = ProcessTable.workers(pid)
        screen.winsize = [40, 132]
        eventually(20, log) { log.call.include?("WINCH is ignored: terminals send it, too") }
        expect(ProcessTable.workers(pid)).to eq(workers)
      end
    end

    { "a daemon" => ->(server) { "#{server.sub(" >", " -d -O StdoutPath=log -O StderrPath=log >")} & wait; sleep 60" },
      "a server under nohup" => ->(server) { "exec nohup #{server}" },
      "a server in a session of its own, as a supervisor starts it" => ->(server) { "setsid #{server} & wait; sleep 60" } }
      .each do |what, command|
      it "D8 reloads #{what}, also when the terminal is closed" do
        in_terminal(command.call(server)) do |close, _, log|
          master = log.call[/Pid:(\d+)/, 1].to_i
          close.call
          Process.kill(:HUP, master)
          eventually(20, log) { log.call.scan("Fastrack is ready").size >= 2 }
          expect(ProcessTable.alive?(master)).to be(true)
        end
      end
    end
  end

  describe "TTIN, TTOU and WINCH" do
    it "C1 TTIN spawns another worker, and TTOU ends the last one, and no client notices" do
      server = start
      before = server.workers
      unnoticed(server) do
        [3, 4].each { |count| server.signal(:TTIN) && server.await_workers(count) }
        eventually { server.workers.map { |pid| ProcessTable.title(pid) }.sort == %w[0 1 2 3].map { |nr| "fastrack worker[#{nr}]" } }
        [3, 2, 1].each { |count| server.signal(:TTOU) && server.await_workers(count) }
      end
      expect(before).to include(*server.workers)
      expect(ProcessTable.title(server.workers.first)).to eq("fastrack worker[0]")
    end

    it "C1 WINCH ends all workers once they have finished, while the master stays; HUP brings them back" do
      server = Server.ready(ru: Rackups::GATE, options: { MaxWorkers: 2 })
      request = SlowRequest.new(server)
      server.signal(:WINCH)
      eventually { server.workers == [request.pid] }
      expect(request.finish.body.to_i).to eq(request.pid)
      server.await_workers(0)
      waiting = Thread.new { server.get.status }
      server.signal(:HUP)
      expect(waiting.value).to eq(200)
      server.await_workers(2)
      expect(server.ended?).to be(false)
    end
  end

  it "C1 to a worker that are for the master change nothing" do
    server = start(MaxWorkers: 1)
    worker = server.workers.first
    server.get
    unnoticed(server) do |clients|
      %w[INT HUP USR1 USR2 TTIN TTOU WINCH].each { |name| server.signal(name, to: worker) && clients.await_answers }
    end
    expect(server.workers).to eq([worker])
  end
end
