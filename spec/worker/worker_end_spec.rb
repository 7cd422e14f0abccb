# frozen_string_literal: true

# How a worker's process ends, and what of the program's own clean-up it does and does not do.
RSpec.describe "The end of a worker" do
  # Notes who has run which hook, and where it was registered.
  notes = <<~'RUBY'
    HERE = File.dirname(File.expand_path(__FILE__))
    NOTE = ->(what) { File.write(File.join(HERE, "notes"), "#{what} #{Process.pid}\n", mode: "a") }
    at_exit { NOTE.call("loaded") }
  RUBY
  app = <<~RUBY
    #{notes}
    run lambda { |env|
      $registered ||= at_exit { NOTE.call("served") }
      NOTE.call("callback") if env["PATH_INFO"] == "/exit" && !exit(5)
      Thread.current.kill if env["PATH_INFO"] == "/kill"
      Process.wait(fork {}) if env["PATH_INFO"] == "/fork"
      [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
    }
  RUBY
  config = <<~'RUBY'
    after_fork { at_exit { NOTE.call("forked") } }
    before_worker_shutdown { |server, worker| NOTE.call("#{server.worker_processes}.#{worker.nr}") }
  RUBY

  define_method(:serve) do |fault = "", **keywords|
    Server.start(ru: fault + app, config: config, **keywords, options: { MaxWorkers: 1, **keywords.fetch(:options, {}) })
          .tap { |server| server.await_workers(keywords.dig(:options, :MaxWorkers) || 1) }
  end

  # What a process has noted, in order.
  def notes_of(server, pid) = server.lines_of("notes").filter_map { |line| line.split.then { |what, by| what if by.to_i == pid } }
  def ended?(pid) = ProcessTable.entry(pid).nil?

  { "TERM to the master" => ->(server, _) { server.stop }, "QUIT to the master" => ->(server, _) { server.stop(:QUIT) },
    "TERM" => ->(server, pid) { server.signal(:TERM, to: pid) },
    "QUIT" => ->(server, pid) { server.signal(:QUIT, to: pid) }, "HUP" => ->(server, _) { server.signal(:HUP) },
    "TTOU" => ->(server, _) { server.signal(:TTOU) }, "USR2" => ->(server, _) { server.signal(:USR2) },
    "the death of the master" => ->(server, _) { server.signal(:KILL) },
    "its request limit" => ->(server, _) { server.get } }.each do |what, act|
    it "D1 by #{what} runs before_worker_shutdown, then every at_exit hook, once each and last first" do
      server = serve(options: { MaxRequestPerChild: 2 })
      pid = server.get.body.to_i
      act.call(server, pid)
      eventually { ended?(pid) }
      expect(notes_of(server, pid)).to eq(%w[1.0 served forked loaded])
    end
  end

  { "/exit" => [5, "exit"], "/kill" => [0, "kill"] }.each do |path, (status, name)|
    it "D1 by the app, in a request to #{path}, is logged and runs them too" do
      server = serve
      pid = server.get.body.to_i
      server.get(path)
      eventually { ended?(pid) }
      expect(server.log).to match(/^fastrack: exit\(#{status}\) was called in worker 0 \(pid #{pid}\), at .*config\.ru:\d+:in .*#{name}/)
      expect(notes_of(server, pid)).to eq(%w[1.0 served forked loaded])
    end
  end

  it "D1 is replaced without waiting for its hooks" do
    server = Server.start(ru: "HERE = __dir__\n#{Rackups::PID}", options: { MaxWorkers: 1 }, config: <<~'RUBY')
      before_worker_shutdown { sleep 0.01 until File.exist?(File.join(HERE, "go")) }
    RUBY
    pid = server.get.body.to_i
    server.signal(:TERM, to: pid)
    # It may still answer who has come before the signal has reached it.
    eventually { server.get.body.to_i != pid }
    expect(server.workers).to include(pid)
    server.write("go", "")
    server.await_workers(1) { |found| found != [pid] }
  end

  it "D1 runs at_exit hooks though before_worker_shutdown raises, which is logged" do
    server = Server.start(ru: app, options: { MaxWorkers: 1 }, config: "before_worker_shutdown { raise 'no queue' }")
    pid = server.get.body.to_i
    expect([server.stop.exitstatus, notes_of(server, pid)]).to eq([0, %w[served loaded]])
    expect(server.log).to include("before_worker_shutdown failed: ").and include("no queue (RuntimeError)")
  end

  ["before_worker_shutdown { sleep }", "after_fork { at_exit { loop {} } }"].each do |hook|
    it "D1 takes no longer than GracefulTimeout for its hooks, whatever they do: #{hook}" do
      server = Server.start(ru: app, options: { MaxWorkers: 1, GracefulTimeout: 1 }, config: hook)
      pid = server.get.body.to_i
      server.signal(:HUP)
      eventually { ended?(pid) }
      expect(server.log).to match(/^fastrack: worker 0 \(pid #{pid}\) has not finished before_worker_shutdown and at_exit hooks within 1 s: ending it$/)
      expect(server.get.status).to eq(200)
    end
  end

  it "D1 by the end of the server takes no longer than GracefulTimeout either" do
    server = Server.start(ru: "MASTER = Process.pid\nat_exit { sleep unless Process.pid == MASTER }\n#{app}",
                          options: { MaxWorkers: 2, GracefulTimeout: 1 })
    server.get
    expect([server.stop(timeout: 5).exitstatus, server.processes]).to eq([0, []])
  end

  it "D1 runs nothing of that where a worker has not booted" do
    server = Server.start(ru: app, options: { MaxWorkers: 1, ErrRespawnInterval: 30 }, config: <<~RUBY)
      after_fork { raise "no database" }
      before_worker_shutdown { NOTE.call("shutdown") }
    RUBY
    eventually { server.log.include?("no database (RuntimeError)") }
    eventually { server.workers.empty? }
    expect(server.lines_of("notes")).to be_empty
  end

  # rackup's hook removes the file that it is given, whichever process runs it.
  { "of rackup (-P)" => { arguments: %w[-P app.pid] }, "of the server" => { options: { Pid: "app.pid" } } }.each do |whose, given|
    it "D1 leaves the pid file #{whose} alone, and so do processes that the app forks" do
      server = serve("", **given)
      pid = server.get("/fork").body.to_i
      server.signal(:HUP)
      eventually { ended?(pid) }
      expect([notes_of(server, pid), server.lines_of("app.pid")]).to match([include("loaded"), [server.master.to_s]])
      server.stop
      expect(File).not_to exist(File.join(server.dir, "app.pid"))
    end
  end

  # What unwinds into the frames of the master would run this.
  run = <<~'RUBY'
    require "rack"
    require "rhebok-rs"
    begin
      catch(:out) do
        Fastrack::Handler.run(Rack::Builder.parse_file("config.ru").then { |app| app.is_a?(Array) ? app.first : app }, **OPTIONS)
      end
    ensure
      File.write("ensured", "#{Process.pid}\n", mode: "a")
    end
  RUBY
  {
    "a $stderr that raises whatever is done with it" => "$stderr = Object.new.tap { |it| def it.write(*) = raise(NoMemoryError) } and exit if env['PATH_INFO'] == '/bad'",
    "a throw that only the master's frames catch" => "throw :out if env['PATH_INFO'] == '/bad'",
    "a fork that calls its block itself, and exit" => "exit if env['PATH_INFO'] == '/bad'",
    "an exception that cannot be described" => "trap('QUIT') { raise Class.new(SecurityError) { def full_message(**) = raise(NoMemoryError) } }"
  }.each do |what, line|
    it "is one, in the worker: #{what}" do
      ru = <<~RUBY
        Process.singleton_class.prepend(Module.new do
          def fork
            pid = super(&nil)
            return pid if pid

            yield
            exit
          end
        end)
        run ->(env) { #{line}; [200, { "content-type" => "text/plain" }, [Process.pid.to_s]] }
      RUBY
      server = start_program(run, ru)
      pid = server.get.body.to_i
      server.get("/bad")
      server.signal(:HUP)
      eventually { ended?(pid) }
      expect([server.get.status, server.stop.exitstatus]).to eq([200, 0])
      expect(server.lines_of("ensured")).to eq([server.pid.to_s])
    end
  end

  def start_program(program, app)
    dir = Dir.mktmpdir("fastrack-spec")
    path = File.join(dir, "run.rb")
    File.write(path, "OPTIONS = { Host: '127.0.0.1', Port: 0, MaxWorkers: 1, ErrRespawnInterval: 0.1, Pid: 'app.pid' }\n#{program}")
    Server.start(ru: app, command: [RbConfig.ruby, "-w", "-I", Server::LIB, path])
  ensure
    FileUtils.remove_entry(dir)
  end
end
