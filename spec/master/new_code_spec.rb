# frozen_string_literal: true

require "open3"
require_relative "../../lib/fastrack/process/proc_stat"

# `fastrack` and HUP: the code is loaded anew by another generation 0.
RSpec.describe "New code (HUP)", linux: "the monitor, which the command asks", exec: "generation 0 is a program of its own", once: "processes" do
  def app(version) = "run ->(_env) { [200, {}, [\"#{version} \#{Process.ppid}\"]] }"

  def serving(ru = app("v1"), options: {}, **keywords)
    Server.ready(ru: ru, fastrack: true, options: { MaxWorkers: 2, MaxRequestPerChild: 0, ControlPath: "control", **options }, **keywords)
  end

  # The command, which waits.
  #
  # @return [Array(String, Integer)] what it says, and its status
  def reload(server)
    command = [Server::CLEAN_ENVIRONMENT, RbConfig.ruby, "-w", Server::COMMAND, "reload", "--control", "control"]
    Open3.capture2e(*command, chdir: server.dir, stdin_data: "").then { |output, status| [output, status.exitstatus] }
  end

  # Waits until new clients get such an answer: a worker of the old code may take some more.
  def await_answer(server, text) = eventually(20, -> { "#{server.get.body}\n#{server.log}" }) { server.get.body.start_with?(text) }

  # Requests of many clients meanwhile, none of which fails.
  def unnoticed(server, &block)
    loop = ClientLoop.run(server, paths: ["/"] * 4, kept: true, &block)
    expect(loop.failures).to eq([])
    loop.bodies
  end

  it "is loaded by another process, which forks all workers anew, and no client notices" do
    server = serving
    before = server.molds
    bodies = unnoticed(server) do
      server.write("config.ru", app("v2"))
      expect(reload(server)).to match([/\AHUP sent to #{server.master}$/, 0])
    end
    expect(bodies.uniq).to include("v1 #{server.master}")
    await_answer(server, "v2 #{server.master}")
    eventually { server.molds.size == 1 && (server.molds & before).empty? && server.workers.size == 2 }
  end

  it "is not in the master, which has neither its constants nor its memory" do
    server = serving(<<~'RUBY')
      LOADED = $$
      $large = "x" * (100 << 20)
      run ->(_env) { [200, {}, ["#{LOADED} #{Process.ppid}"]] }
    RUBY
    expect(server.get.body).to eq("#{server.molds.first} #{server.master}")
    resident = ->(pid) { File.read("/proc/#{pid}/statm").split[1].to_i * Etc.sysconf(Etc::SC_PAGESIZE) >> 20 }
    expect([resident.call(server.master), resident.call(server.molds.first)]).to match([be < 90, be > 100])
  end

  hang = { options: { WorkerBootTimeout: GcMode.patient(3) } }
  failures = {
    "raises" => ["raise 'no such table'", "the app does not load: .*no such table \\(RuntimeError\\)"],
    "is no Ruby" => ["run (", "the app does not load: "],
    "exits" => ["exit 3", "exit\\(3\\) was called while the app was loaded"],
    "hangs" => ["sleep", "generation 0 \\(pid \\d+\\) was killed by the master \\(WorkerBootTimeout\\)", hang],
    "crashes" => ["Process.kill(:SEGV, $$); sleep", "generation 0 \\(pid \\d+\\) was killed by SIG(?:SEGV|ABRT)"]
  }
  failures.each do |what, (code, reason, given)|
    it "leaves the old code serving when the new code #{what}, and the command says why" do
      server = serving(**given.to_h)
      before = [server.workers, server.molds]
      unnoticed(server) do
        server.write("config.ru", code)
        expect(reload(server)).to match([/\AHUP sent.*\n.*HUP has failed: the old code serves on \(pid #{server.master}\): #{reason}/, 1])
      end
      eventually { [server.workers, server.molds] == before }
      expect(server.log).to match(/^fastrack: HUP: the new code is given up: #{reason}.*; the old code serves on$/)
      server.write("config.ru", app("v3"))
      expect(reload(server).last).to eq(0)
      await_answer(server, "v3")
    end
  end

  hooks = { "before_fork raises" => "before_fork { raise 'no room' }", "after_fork of the second worker raises" => "after_fork { |_, worker| raise 'no room' if worker.nr == 1 }",
            "after_fork of the second worker is killed" => "after_fork { |_, worker| Process.kill(:KILL, $$) if worker.nr == 1 }" }
  hooks.each do |what, hook|
    it "gives way to the old code again when #{what}" do
      server = serving(config: "before_fork { }", options: { ErrRespawnInterval: 0.1 })
      before = server.molds
      unnoticed(server) do
        server.write("fastrack.rb", hook)
        server.write("config.ru", app("v2"))
        expect(reload(server)).to match([/HUP has failed: .*(?:no room|SIGKILL)/, 1])
        eventually { server.molds == before && server.workers.size == 2 && Array.new(10) { server.get.body[0, 2] }.uniq == ["v1"] }
      end
    end
  end

  # Keeps a worker of the new code from being ready.
  held = "after_fork { |_, worker| File.write('held', '') && sleep if worker.nr == 1 }\n"

  it "of a second HUP that fails while the first one's workers start leaves the configuration of what serves" do
    server = serving(config: "max_workers 2\n", options: { MaxWorkers: nil })
    before = server.molds
    server.write("config.ru", app("v2"))
    server.reload("max_workers 3\n#{held}")
    server.await_file("held")
    server.write("config.ru", "raise 'no such table'")
    server.write("fastrack.rb", "max_workers 4\n")
    expect(reload(server)).to match([/HUP has failed: the old code serves on .*no such table/, 1])
    eventually { server.molds == before && server.workers.size == 2 && Array.new(10) { server.get.body[0, 2] }.uniq == ["v1"] }
    expect(server.log).to include("HUP: the new code is given up: another HUP has come; the old code serves on\n")
  end

  it "of a second HUP is loaded while the first one's app is, and each command says what has become of its own" do
    server = serving
    server.write("config.ru", "File.write('held', '')\nsleep")
    first = Thread.new { reload(server) }
    server.await_file("held")
    server.write("config.ru", app("v3"))
    expect(reload(server)).to match([/\AHUP sent to #{server.master}$/, 0])
    expect(first.value).to match([/HUP has failed: .*another HUP has come/, 1])
    await_answer(server, "v3")
  end

  it "goes back to addresses that an earlier HUP is about to remove" do
    FreePort.keep(2) do |port|
      config = ->(number) { "max_workers 2\nlisten '127.0.0.1:#{number}'\n" }
      server = serving(config: config.call(port), options: { MaxWorkers: nil, Host: nil, Port: nil })
      server.reload("#{config.call(port + 1)}#{held}")
      server.await_file("held")
      server.write("config.ru", app("v3"))
      server.write("fastrack.rb", config.call(port))
      expect(reload(server).last).to eq(0)
      eventually { HttpResponse.ask(TCPSocket.new("127.0.0.1", port)).body.start_with?("v3") }
      eventually { TCPSocket.new("127.0.0.1", port + 1).close || false rescue true }
    end
  end

  it "of a HUP after one that has failed is not taken for good because of workers that are left of that" do
    server = serving(config: "", options: { ErrRespawnInterval: 6 })
    ["v2", "v3"].each.with_index do |version, failing|
      server.write("config.ru", app(version))
      server.write("fastrack.rb", "after_fork { |_, worker| raise 'no room' if worker.nr == #{1 - failing} }")
      expect(reload(server)).to match([/HUP has failed: .*no room/, 1])
    end
    eventually { Array.new(10) { server.get.body[0, 2] }.uniq == ["v1"] }
  end

  it "comes from where `working_directory` leads by then" do
    Dir.mktmpdir do |dir|
      %w[one two].each { |name| Folder.write(dir, "#{name}/config.ru", app(name)) }
      File.symlink("#{dir}/one", "#{dir}/current")
      server = Server.ready(ru: "", command: [*Server::FASTRACK, "-c", "#{dir}/fastrack.rb", "-e", "production"],
                            files: { File.join("..", File.basename(dir), "fastrack.rb") => "working_directory '#{dir}/current'\nlisten '127.0.0.1:0'\nmax_workers 1\n" })
      File.unlink("#{dir}/current")
      File.symlink("#{dir}/two", "#{dir}/current")
      FileUtils.rm_rf("#{dir}/one")
      server.signal(:HUP)
      server.await_ready(2)
      await_answer(server, "two")
    end
  end

  it "comes with the gems of a new Gemfile.lock" do
    Dir.mktmpdir do |dir|
      gem = lambda do |version|
        Folder.write(dir, "greeting-#{version}/lib/greeting.rb", "GREETING = 'gem #{version}'")
        Folder.write(dir, "greeting-#{version}/greeting.gemspec",
                     "Gem::Specification.new { |s| s.name, s.version, s.summary, s.authors, s.files = 'greeting', '#{version}', 's', ['a'], ['lib/greeting.rb'] }")
        Folder.write(dir, "Gemfile", "gem 'rhebok-rs', path: #{Server::ROOT.inspect}\ngem 'greeting', path: 'greeting-#{version}'\n")
        system(Server::CLEAN_ENVIRONMENT, "bundle", "lock", "--local", chdir: dir, %i[out err] => File::NULL)
      end
      gem.call("1.0") or skip "Bundler does not find the gems on this machine"
      Folder.write(dir, "config.ru", "require 'greeting'\nrun ->(_env) { [200, {}, [GREETING]] }")
      server = Server.ready(ru: "", command: ["sh", "-c", 'cd "$0" && exec "$@"', dir, "bundle", "exec", Server::COMMAND, "-p", "0", "-o", "127.0.0.1", "-e", "production"])
      gem.call("2.0")
      server.signal(:HUP)
      server.await_ready(2)
      await_answer(server, "gem 2.0")
    end
  end

  # It waits while there is a file `hold`.
  def slow(version) = "File.write('loading', '') && (sleep 0.01 while File.exist?('hold'))\n#{app(version)}"

  it "is the newest one where another HUP comes while it loads, with the newest configuration, and each command says what has come of it" do
    server = serving(config: "max_workers 1", options: { MaxWorkers: nil })
    server.write("hold", "")
    server.write("config.ru", slow("v2"))
    first = Thread.new { reload(server) }
    server.await_file("loading")
    server.write("config.ru", app("v3"))
    server.write("fastrack.rb", "max_workers 3")
    expect([reload(server), first.value]).to match([[/\AHUP sent to #{server.master}$/, 0], [/another HUP has come$/, 1]])
    await_answer(server, "v3")
    server.await_workers(3)
  end

  it "is loaded where HUP comes while generation 0 is made anew, and the command says so" do
    server = serving(slow("v1"), config: "max_workers 1", options: { MaxWorkers: nil, ErrRespawnInterval: 0.1 })
    server.remove("loading")
    server.write("hold", "")
    server.signal(:KILL, to: server.molds.first)
    server.await_file("loading")
    server.write("config.ru", app("v2"))
    server.write("fastrack.rb", "max_workers 3")
    expect(reload(server)).to match([/\AHUP sent to #{server.master}$/, 0])
    await_answer(server, "v2")
    server.await_workers(3)
  end

  it "is loaded where log files are reopened meanwhile (USR1)" do
    server = serving
    server.write("config.ru", app("v2"))
    asked = Thread.new { reload(server) }
    server.signal(:USR1) && sleep(0.02) while asked.alive?
    expect(asked.value).to match([/\AHUP sent to #{server.master}$/, 0])
    await_answer(server, "v2")
  end

  waiting = "File.write('held up', '') && (sleep 0.01 while File.exist?('hold'))"
  { "TTOU while it loads" => [:TTOU, waiting, ""], "WINCH while its worker starts" => [:WINCH, "", "after_fork { #{waiting} }"] }.each do |what, (name, code, hook)|
    it "is there once it is loaded where #{what} leaves no worker: the command says so, and the next worker has it" do
      server = serving(config: "max_workers 1", options: { MaxWorkers: nil })
      server.write("hold", "")
      server.write("config.ru", "#{code}\n#{app("v2")}")
      server.write("fastrack.rb", "max_workers 1\n#{hook}")
      asked = Thread.new { reload(server) }
      server.await_file("held up")
      server.signal(name)
      server.await_log("#{name}: changing to 0 workers")
      server.remove("hold")
      eventually(20, -> { server.log }) { !asked.alive? }
      expect(asked.value).to match([/\AHUP sent to #{server.master}$/, 0])
      server.signal(:TTIN)
      server.await_workers(1)
      expect(server.get.body).to start_with("v2")
    end
  end

  it "is given up without a word of the master's end when the server is told to stop meanwhile" do
    server = serving
    server.write("config.ru", "File.write('loading', '')\nsleep")
    server.signal(:HUP)
    server.await_file("loading")
    expect([server.stop.exitstatus, server.log]).to match([0, /\A(?!.*when its master ended)/m])
  end

  it "keeps no processor busy while it is loaded and a worker waits for it" do
    server = serving(slow("v1"), options: { ErrRespawnInterval: 0.1 })
    server.remove("loading")
    server.write("hold", "")
    [server.molds.first, server.workers.first].each { |pid| server.signal(:KILL, to: pid) }
    server.await_file("loading")
    computed = -> { Fastrack::ProcStat.cpu_seconds(server.master) }
    before = computed.call
    # A busy machine gives a busy process a part of its time.
    sleep 2
    expect(computed.call - before).to be < 0.05
    server.remove("hold")
    server.await_workers(2)
  end

  it "brings up generation 0 again when it is killed, and all workers are known" do
    server = serving(options: { ErrRespawnInterval: 0.1 })
    mold = server.molds.first
    server.signal(:KILL, to: mold)
    before = server.workers
    before.each { |pid| server.signal(:KILL, to: pid) }
    eventually(20) { server.workers.size == 2 && (server.workers & before).empty? && server.molds.size == 1 && server.molds != [mold] }
    expect([server.get.status, server.log]).to match([200, /generation 0 \(pid #{mold}\) was killed by SIGKILL/])
  end

  { "TTIN" => ["3 workers", "4 workers"], "TTOU" => ["1 worker", "2 workers"], "WINCH" => ["0 workers", "1 worker"] }.each do |name, (set, more)|
    it "brings up generation 0 again when it is killed, with as many workers as #{name} has left" do
      server = serving("File.write('loads', \"\\n\", mode: 'a')\n#{app("v1")}", options: { ErrRespawnInterval: 0.1 })
      server.signal(name)
      server.await_log("#{name}: changing to #{set}")
      server.signal(:KILL, to: server.molds.first)
      # The app loads once the master has the settings.
      eventually { server.lines_of("loads").size == 2 }
      server.signal(:TTIN)
      server.await_log("TTIN: changing to #{more}")
      server.await_workers(more.to_i)
    end
  end

  it "brings up generation 0 again when it does not answer, and the log names it" do
    server = serving(options: { WorkerBootTimeout: 3, ErrRespawnInterval: 0.1 })
    mold = server.molds.first
    before = server.workers
    server.signal(:STOP, to: mold)
    server.signal(:KILL, to: before.first)
    server.await_log(/^fastrack: generation 0 \(pid #{mold}\) forks no worker: it has not answered within 8 s$/)
    server.await_log(/^fastrack: generation 0 \(pid #{mold}\) was killed by the master \(it has forked no worker\)$/)
    server.await_workers(2) { |found| !found.include?(before.first) }
    expect(server.get.status).to eq(200)
  end

  it "has a plugin of Puma's with a port of its own stop with the old code, and start with the new" do
    FreePort.keep(1) do |port|
      plugin = <<~RUBY
        require "puma/plugin"
        Puma::Plugin.create do
          def start(launcher)
            server = TCPServer.new("127.0.0.1", #{port})
            launcher.events.on_stopped { server.close; File.write("stopped", "\#{$$}\\n", mode: "a") }
            in_background { loop { server.accept.tap { |client| client.write(VERSION_OF_APP) }.close } rescue nil }
          end
        end
      RUBY
      server = Server.ready(ru: "VERSION_OF_APP = 'one'\n#{Rackups::PID}", command: [*Server::FASTRACK, "-C", "puma.rb", "-e", "production", "-O", "ControlPath=control"],
                            files: { "puma.rb" => "bind 'tcp://127.0.0.1:0'\nplugin :port\nworkers 2", "lib/puma/plugin/port.rb" => plugin }, env: { "RUBYLIB" => "lib" })
      said = -> { TCPSocket.open("127.0.0.1", port, &:read) }
      expect(said.call).to eq("one")
      old = server.molds.first
      server.write("config.ru", "VERSION_OF_APP = 'two'\n#{Rackups::PID}")
      expect(reload(server).last).to eq(0)
      eventually { said.call == "two" rescue false }
      expect(server.lines_of("stopped")).to eq([old.to_s])
      server.stop
      expect(server.lines_of("stopped").size).to eq(2)
    end
  end

  it "is in no process that root runs", if: Process.uid.zero? do
    server = serving("LOADED_BY = [Process.uid, $$]\nrun ->(_env) { [200, {}, [LOADED_BY.inspect]] }", options: { User: "nobody" })
    user = Etc.getpwnam("nobody").uid
    expect(server.get.body).to eq([user, server.molds.first].inspect)
    uids = ->(pid) { File.read("/proc/#{pid}/status").slice(/^Uid:\s+(.*)/, 1).split.map(&:to_i).uniq }
    expect([*server.molds, *server.workers].map(&uids).uniq).to eq([[user]])
    expect(uids.call(server.master)).to eq([0])
  end
end
