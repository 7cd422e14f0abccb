# frozen_string_literal: true

# What is not the server's and runs in the master: hooks, events, plugins, wrappers of Process._fork.
RSpec.describe "D10 The master", once: "what the master does with what a hook raises is the same in every Ruby" do
  include ReexecHelpers

  # A server with a puma.rb, and with a plugin if its body is given.
  def serve(config, plugin: nil, workers: 2, env: {}, options: {}, by: :start)
    files = { "puma.rb" => "bind 'tcp://127.0.0.1:0'\nworkers #{workers}\n#{"plugin :example\n" if plugin}#{config}",
              "lib/puma/plugin/example.rb" => "require 'puma/plugin'\nPuma::Plugin.create do\n#{plugin}\nend" }
    options = { ErrRespawnInterval: 0.1, **options }.flat_map { |name, value| ["-O", "#{name}=#{value}"] }
    Server.public_send(by, ru: Rackups::PID, files: files, env: { "RUBYLIB" => "lib", **env },
                           command: [RbConfig.ruby, "-w", Server::COMMAND, "-C", "puma.rb", "-E", "none", *options])
  end

  # As many workers as there should be, and all of them known to the master.
  def expect_all_known(server, count)
    server.await_ready
    expect(server.get("/").status).to eq(200)
    before = server.await_workers(count)
    eventually(20, -> { server.processes.map { |pid| ProcessTable.title(pid) } }) { server.processes.size == count + 2 }
    server.renew(before)
    expect([server.stop.exitstatus, server.processes]).to eq([0, []])
  end

  # What is no StandardError, and what the log says of it.
  kinds = {
    "cannot load" => ['require "gone/for/good"', "cannot load such file -- gone/for/good (LoadError)"],
    "is not implemented" => ["raise NotImplementedError, 'not here'", "not here (NotImplementedError)"],
    "exits" => ["exit 3", "exit (SystemExit)"],
    "throws" => ["throw :done", "uncaught throw :done (UncaughtThrowError)"],
    "has no stack left" => ["raise SystemStackError, 'stack level too deep'", "stack level too deep (SystemStackError)"],
    "raises what cannot be printed" => ["raise Class.new(Exception) { def message = raise('no') }", "#<Class:"]
  }

  kinds.each do |what, (code, line)|
    it "loses no worker, and serves on, where each hook of a puma.rb, event and background thread in it #{what}" do
      hooks = %w[before_fork before_worker_fork after_worker_fork after_booted after_worker_shutdown after_stopped]
      server = serve(hooks.map { |hook| "#{hook} { |*| #{code} }\n" }.join, plugin: <<~RUBY)
        def start(launcher)
          launcher.events.on_booted { #{code} }
          launcher.events.on_stopped { #{code} }
          in_background { #{code} }
        end
      RUBY
      expect_all_known(server, 2)
      [*hooks, "a plugin's after_booted", "a plugin's after_stopped", "a plugin's background thread"].each do |name|
        expect(server.log).to match(/^fastrack: #{name} failed: .*#{Regexp.escape(line)}/)
      end
    end

    it "names a plugin whose start #{what}, in one line" do
      server = serve("", plugin: "def start(_) = begin; #{code}; end", by: :fail_to_start)
      expect(server.log).to match(/^fastrack: plugin :example does not start, without Puma's server: #{Regexp.escape(line)}.*\n\z/)
      expect(server.status.exitstatus).to eq(1)
    end
  end

  # What such a wrapper does with a pid, 0 in the child, and what the log says of it.
  { "keeps a worker where a wrapper of Process._fork raises when it is there" =>
      ["pid == 0 ? pid : raise(LoadError, 'no such agent')", /process \d+ was forked nevertheless: .*no such agent \(LoadError\)/],
    "ends a worker where a wrapper of Process._fork raises in that, and tries again" =>
      ["pid == 0 ? raise(LoadError, 'no such agent') : pid", /a process that a hook has forked ends: .*no such agent \(LoadError\)/],
    "takes what a wrapper of Process._fork returns for what it is" =>
      ["pid == 0 ? pid : nil", /process \d+ was forked nevertheless: .*\(TypeError\)/],
    "goes on where a wrapper of Process._fork hangs, and keeps the worker" =>
      ["pid == 0 ? pid : sleep", /process \d+ was forked nevertheless: .*it is not done within 4 s/] }.each do |what, (code, line)|
    it what do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 2, ErrRespawnInterval: 0.1, WorkerBootTimeout: 4 }, config: <<~RUBY)
        Process.singleton_class.prepend(Module.new do
          def _fork = super.then { |pid| File.exist?("bad") ? (#{code}) : pid }
        end)
      RUBY
      before = server.await_workers(2)
      server.write("bad", "")
      server.signal(:KILL, to: before.first)
      server.await_log(/^fastrack: #{line}/)
      server.remove("bad")
      expect_all_known(server, 2)
    end
  end

  it "has the next generation 0 run after_worker_exit for a worker that ends while that loads the app" do
    slow = "File.write('loading', '') && (sleep 0.01 while File.exist?('hold'))\n#{app("v1")}"
    server = start(ru: slow, fastrack: true, options: { ErrRespawnInterval: 0.1 }, config: <<~'RUBY')
      after_worker_exit { |_, worker, status| File.write("ended", "#{Process.pid} #{worker.pid} #{status.termsig}\n", mode: "a") }
    RUBY
    server.remove("loading")
    server.write("hold", "")
    server.signal(:KILL, to: server.molds.first)
    server.await_file("loading")
    worker = server.workers.first
    server.signal(:KILL, to: worker)
    server.await_log("(pid #{worker}) was killed by SIGKILL")
    server.remove("hold")
    eventually(20, -> { server.log }) { server.lines_of("ended") == ["#{server.molds.first} #{worker} 9"] }
  end

  it "knows the new master that USR2 has forked, where a wrapper of Process._fork raises" do
    server = start(config: <<~RUBY)
      Process.singleton_class.prepend(Module.new do
        def _fork = super.tap { |pid| raise LoadError, "no such agent" if pid != 0 && File.exist?("bad") }
      end)
    RUBY
    server.write("bad", "")
    usr2(server)
    server.remove("bad") if new_master(server)
    taken_over(server)
    expect(server.get.status).to eq(200)
  end

  it "leaves no process behind where before_exec hangs, and the old master is gone" do
    # By its end the old master is to have gone.
    server = start(options: { BootTimeout: GcMode.patient(3) }, config: "before_exec { File.write('hung', ''); sleep }")
    usr2(server)
    server.await_file("hung")
    server.signal(:QUIT)
    server.wait
    eventually(20, -> { server.log }) { server.processes.empty? }
    expect(server.log).to match(/^fastrack: before_exec has not finished within BootTimeout \(pid \d+\): ending it$/)
  end

  it "is not what a process goes on as that a hook forks, whether that returns or exits" do
    server = Server.start(ru: Rackups::PID, unix: true, options: { MaxWorkers: 2, Pid: "app.pid" }, config: <<~'RUBY')
      # Returns twice, as C's does.
      before_fork do |_, worker|
        pid = fork
        File.write("children", "#{pid}\n", mode: "a") if pid
        exit if pid.nil? && worker.nr == 1
      end
    RUBY
    server.await_log("Fastrack is ready")
    children = server.lines_of("children").map(&:to_i)
    eventually { children.size == 2 && children.none? { |pid| ProcessTable.alive?(pid) } }
    # It has taken nothing of the server's with it, and done nothing that is the server's.
    expect(File.socket?(server.path) && File.exist?(File.join(server.dir, "app.pid"))).to be(true)
    expect(server.log).not_to match(/failed|cannot|Error/)
    expect(server.get.status).to eq(200)
  end

  it "goes on after WorkerBootTimeout where a plugin's event hangs, and runs the next one" do
    server = serve("", plugin: <<~RUBY, options: { WorkerBootTimeout: 6 })
      def start(launcher)
        launcher.events.on_booted { sleep }
        launcher.events.on_booted { File.write("next", "") }
      end
    RUBY
    server.await_log(/^fastrack: a plugin's after_booted failed: .*it is not done within 6 s/)
    server.await_file("next")
    expect_all_known(server, 2)
  end

  describe "ends by TERM" do
    def hung(server) = server.tap { server.await_file("hung") }

    hang = "(File.write('hung', '') && sleep)"

    { "after_booted" => ["after_booted { |*| #{hang} }", nil, "after_booted failed"],
      "a plugin's start" => ["", "def start(_) = #{hang}", "plugin :example does not start"] }.each do |what, (config, plugin, line)|
      it "where #{what} hangs" do
        server = hung(serve(config, plugin: plugin, options: { WorkerBootTimeout: 0 }, by: plugin ? :launch : :start))
        expect([server.stop.exitstatus, server.processes]).to eq([0, []])
        expect(server.log).to match(/^fastrack: #{line}: .*TERM has come meanwhile/)
      end
    end

    it "where after_stopped hangs, sooner by another TERM" do
      server = serve(<<~RUBY, options: { WorkerBootTimeout: 0 })
        # The other TERM is to come earlier.
        Fastrack::TimeLimit.send(:remove_const, :ENDING_TIME)
        Fastrack::TimeLimit::ENDING_TIME = 600
        after_stopped { #{hang} }
      RUBY
      server.await_ready
      server.signal(:TERM)
      hung(server).signal(:TERM)
      expect(server.wait.exitstatus).to eq(0)
      expect(server.log).to match(/^fastrack: after_stopped failed: .*TERM has come meanwhile/)
    end

    it "where after_stopped hangs, without another one" do
      server = serve("after_stopped { sleep }")
      server.await_ready
      expect(server.stop.exitstatus).to eq(0)
      expect(server.log).to match(/^fastrack: after_stopped failed: .*it is not done within 5 s/)
    end

    it "where a hook rescues all that is raised, though not in good order" do
      server = hung(serve("after_booted { begin; #{hang}; rescue Exception; retry; end }", options: { WorkerBootTimeout: 0 }))
      expect(server.stop.exitstatus).to eq(0)
      eventually { server.processes.empty? }
      expect(server.log).to match(/a hook cannot be ended: TERM has come meanwhile; process \d+ ends without it$/)
    end
  end

  it "pings systemd's watchdog while a hook hangs" do
    Dir.mktmpdir do |dir|
      socket = Socket.new(:UNIX, :DGRAM).tap { |one| one.bind(Addrinfo.unix("#{dir}/notify")) }
      server = serve("after_booted { File.write('hung', ''); sleep }", env: { "NOTIFY_SOCKET" => "#{dir}/notify", "WATCHDOG_USEC" => "200000" })
      server.await_file("hung")
      nil while socket.recv_nonblock(4096, exception: false).is_a?(String)
      3.times { expect(socket.wait_readable(10) && socket.recv(4096)).to eq("WATCHDOG=1") }
      expect(server.stop.exitstatus).to eq(0)
    ensure
      socket.close
    end
  end

  it "leaves Puma's statistics undefined where there are none, so that agents that ask for them are told so" do
    server = serve("after_booted { File.write('stats', [Puma.respond_to?(:stats), (Puma.stats rescue $!.class)].inspect) }", plugin: "")
    eventually { server.lines_of("stats") == ["[false, NoMethodError]"] }
  end

  it "serves on where the logger that it writes to raises what is no StandardError" do
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 1, ErrRespawnInterval: 0.1 }, config: <<~RUBY)
      require "logger"
      logger(Class.new(Logger) { def add(*) = File.exist?("bad") ? exit(3) : super }.new($stderr))
    RUBY
    before = server.await_workers(1)
    server.write("bad", "")
    server.signal(:KILL, to: before.first)
    server.await_log("was killed by SIGKILL")
    server.await_others(before)
    expect(server.get.status).to eq(200)
  end
end
