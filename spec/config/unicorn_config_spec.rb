# frozen_string_literal: true

# Files of Unicorn's users, as they are.
RSpec.describe "A unicorn.rb", once: "words, sockets and processes" do
  fixtures = File.expand_path("../fixtures", __dir__)

  def serve(config, **more) = Server.start(ru: Rackups::PID, config: config, fastrack: true, options: { Host: nil, Port: nil }, **more)
  def ask(socket) = HttpResponse.ask(socket).body.to_i

  describe "as a large site had it" do
    around do |example|
      Dir.mktmpdir("fastrack-unicorn") do |dir|
        @root = dir
        File.chmod(0o755, dir)
        FreePort.keep(2) { |port| (@port = port) && example.run }
      end
    end

    # Each worker's port is this one and its number.
    let(:first) { @port }
    let(:config) { File.read(File.join(fixtures, "unicorn_github.rb")) }
    let(:environment) { { "APP_ROOT" => @root, "RAILS_ENV" => "staging", "WORKER_PORTS" => first.to_s } }

    it "C2 works: socket, pid file, hooks, a port for each worker, and no root's rights in workers", if: Process.uid.zero? do
      server = serve(config, env: environment)
      workers = server.await_workers(2)
      expect(workers).to include(server.get.body.to_i)
      expect(File.read("#{@root}/unicorn.pid").to_i).to eq(server.master)
      expect(File.readlines("#{@root}/before", chomp: true)).to eq(["0 of 2", "1 of 2"])

      server.await_ready
      answering = Array.new(2) { |nr| ask(TCPSocket.new("127.0.0.1", first + nr)) }
      expect(answering).to match_array(workers)
      nobody = Etc.getpwnam("nobody")
      expect(workers.map { |pid| File.stat("/proc/#{pid}").uid }).to eq([nobody.uid] * 2)
      expect(File.stat("/proc/#{server.master}").uid).to eq(0)
    end

    it "C2 a worker's port that is taken keeps nobody waiting, and is listened on once it is free" do
      taken = TCPServer.new("127.0.0.1", first)
      server = serve(config, env: environment)
      before = server.await_workers(2)
      expect(before).to include(server.get.body.to_i)
      server.await_log("127.0.0.1:#{first}: the port is in use; trying again every 0.05 s")
      taken.close
      answering = eventually { ask(TCPSocket.new("127.0.0.1", first)) rescue nil } # rubocop:disable Style/RescueModifier
      expect(server.await_workers(2)).to include(answering)
      expect(before).not_to include(answering)
    end
  end

  it "C2 for a platform: TERM to the master alone ends all, though workers leave TERM alone" do
    server = serve(File.read(File.join(fixtures, "unicorn_heroku.rb")), options: {}, env: { "WEB_CONCURRENCY" => "2" })
    workers = server.await_workers(2)
    expect(workers).to include(server.get.body.to_i)
    workers.each { |pid| server.signal(:TERM, to: pid) }
    expect(server.stop(:TERM).exitstatus).to eq(0)
  end

  it "C2 hooks may ask the server for its configuration and its logger, and are told of workers that are ready, and that end" do
    server = serve(<<~RUBY, options: {})
      worker_processes 1
      timeout 20
      require "logger"
      logger Logger.new("server.txt")
      notes = ->(line) { File.write("notes", line + "\\n", mode: "a") }
      after_fork { |server, worker| notes.call([server.timeout, server.config[:worker_processes], server.config["preload_app"], server.preload_app].inspect) }
      after_worker_ready { |server, worker| server.logger.info("worker \#{worker.nr} is ready") }
      after_worker_exit { |server, worker, status| notes.call([worker.nr, worker.pid, status.termsig].inspect) }
    RUBY
    worker, = server.await_workers(1)
    server.get
    server.signal(:KILL, to: worker)
    eventually { server.lines_of("notes").size == 3 }
    expect(server.lines_of("notes")).to contain_exactly("[20.0, 1, true, true]", "[20.0, 1, true, true]", "[0, #{worker}, 9]")
    eventually { server.lines_of("server.txt").grep(/INFO -- : worker 0 is ready/).any? }
  end
end
