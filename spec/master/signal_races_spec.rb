# frozen_string_literal: true

# ConfigFiles hold the processes where they are for a moment only.
RSpec.describe "Signals at a bad moment", once: "processes and signals" do
  include ReexecHelpers

  # Has a process wait in a method until a file is there, and say by another one that it does.
  def held_in(constant, method, what)
    <<~RUBY
      #{constant}.prepend(Module.new do
        def #{method}(...)
          if File.exist?("hold")
            File.write("held", Process.pid.to_s)
            sleep 0.01 until File.exist?("#{what}")
          end
          super
        end
      end)
    RUBY
  end

  it "C1 USR1 reaches a worker that has no handlers yet" do
    server = start(options: { MaxWorkers: 1 }, config: held_in("Fastrack::Worker", "take_signals", "go"))
    server.write("hold", "")
    server.signal(:TTIN)
    worker = eventually { server.lines_of("held").first&.to_i }
    moved = "#{server.log_path}.1"
    listening = server.listening
    File.rename(server.log_path, moved)
    server.signal(:USR1)
    eventually { ProcessTable.descriptors(server.pid).values.include?(server.log_path) }
    File.write(server.log_path, "#{listening}\n", mode: "a")
    server.write("go", "")
    server.await_workers(2)
    eventually(20, "the worker goes on with the old file") { !ProcessTable.descriptors(worker).values.include?(moved) }
  end

  it "B-faults those who wait at an address that is gone are served by a worker that was starting when it went" do
    FreePort.keep(2) do |port|
      config = ->(at) { "#{held_in("Fastrack::Worker", "prepare", "go")}\nlisten '127.0.0.1:#{at}'\nworker_processes 1\nafter_worker_ready { sleep 0.01 until File.exist?('serve') }" }
      server = Server.launch(ru: Rackups::PID, options: { Host: nil, Port: nil }, config: config.call(port), files: { "hold" => "" })
      server.await_log("Listening on 127.0.0.1:#{port}")
      eventually { server.lines_of("held").first }
      server.remove("hold")
      waiting = Array.new(5) { TCPSocket.new("127.0.0.1", port).tap { |socket| socket.write("GET / HTTP/1.0\r\nHost: h\r\n\r\n") } }
      server.reload(config.call(port + 1))
      server.await_log("HUP: replacing 1 worker")
      %w[go serve].each { |name| server.write(name, "") }
      expect(waiting.map { |socket| read_status(socket) }).to all(eq(200))
      server.await_log("no longer listening on 127.0.0.1:#{port}\n")
    ensure
      waiting&.each(&:close)
    end
  end

  it "A10 a worker that is told to stop while its engine is being created serves whom others have handed over to it" do
    created = <<~'RUBY'
      Fastrack::EngineBuilder.prepend(Module.new do
        def engine(...)
          super.tap do
            next unless File.exist?("hold")
            File.write("held", Process.pid.to_s)
            sleep 0.01 until File.exist?("go")
          end
        end
      end)
      before_worker_shutdown { |_, worker| File.write("ended", "#{worker.nr}\n", mode: "a") }
    RUBY
    server = start(options: { MaxWorkers: 1 }, config: created)
    client = KeptPeer.new(server).tap { |peer| peer.get("/") }
    first = server.workers.first
    server.write("hold", "")
    server.signal(:TTIN)
    eventually { server.lines_of("held").first }
    server.signal(:QUIT)
    # It has handed its client over, and gone.
    eventually { !ProcessTable.alive?(first) }
    client.ask("/")
    server.write("go", "")
    expect([client.answer.headers["Connection"], server.wait.exitstatus]).to eq(["close", 0])
    expect(server.lines_of("ended")).to contain_exactly("0", "1")
  end

  def read_status(socket)
    HttpResponse.parse(socket.read).status
  rescue Errno::ECONNRESET
    :reset
  end

  %i[TERM INT].each do |name|
    it "B-faults #{name} right after USR2 ends the server, and the new master with it" do
      server = start(config: held_in("Fastrack::NewMaster.singleton_class", "become_master", "go"))
      server.write("hold", "")
      usr2(server)
      successor = eventually { server.lines_of("held").first&.to_i }
      server.signal(name)
      expect(server.wait.exitstatus).to eq(0)
      server.write("go", "")
      eventually(20, -> { server.log }) { !ProcessTable.alive?(successor) }
      expect(server.log.scan("Listening").size).to eq(1)
    end
  end

  it "C1 TTOU makes a server ready whose last worker does not start" do
    server = Server.start(ru: app("v1"), options: { MaxWorkers: 2, ErrRespawnInterval: 60 }, config: <<~RUBY)
      after_fork { |_, worker| exit if worker.nr == 1 }
    RUBY
    server.await_log("exited before it was ready")
    server.await_workers(1)
    expect(server.get.status).to eq(200)
    server.signal(:TTOU)
    server.await_log("Fastrack is ready Workers:1")
  end

  it "C1 WINCH makes no new master ready that has had no worker: the old one serves until it has one" do
    server = start(config: "after_fork { File.write('held', '') && (sleep 0.01 while File.exist?('hold')) if File.exist?('hold') }")
    server.write("hold", "")
    usr2(server)
    successor = new_master(server)
    server.await_file("held")
    server.signal(:WINCH, to: successor)
    server.await_log("WINCH: changing to 0 workers")
    server.remove("hold")
    expect(server.get.body).to eq("v1 #{server.pid}")
    server.signal(:TTIN, to: successor)
    expect(taken_over(server)).to eq(successor)
    expect(server.log.scan(/Fastrack is ready Workers:\d+/)).to eq(["Fastrack is ready Workers:2", "Fastrack is ready Workers:1"])
  end
end
