# frozen_string_literal: true

# What outlives a master that is killed, and for how long; and what the app's own processes have of the server.
RSpec.describe "Orphans", once: "processes and signals" do
  def kill_master(server)
    server.signal(:KILL)
    server.wait
  end

  describe "kill -9 of the master" do
    # Answers with more than the kernel takes ahead of a client, and uploads with their length.
    slow = <<~'RUBY'
      run lambda { |env|
        length = env["rack.input"].read.bytesize
        [200, {}, length.zero? ? Array.new(160, "x" * 100_000) : [length.to_s]]
      }
    RUBY

    { "idle workers" => true, "workers that are just starting" => false }.each do |who, ready|
      it "B-orphans #{who} end" do
        server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 3 })
        server.await_ready if ready
        kill_master(server)
        eventually { server.processes.empty? }
      end
    end

    it "B-orphans a busy worker finishes its request and ends, and the address is free" do
      FreePort.keep do |port|
        server = Server.start(ru: Rackups::GATE, options: { MaxWorkers: 2, Port: port })
        request = SlowRequest.new(server)
        kill_master(server)
        eventually { server.processes == [request.pid] }
        expect(request.finish.status).to eq(200)
        eventually { server.processes.empty? }
        expect(Server.start(ru: Rackups::PID, options: { Port: port }).get.status).to eq(200)
      end
    end

    it "B-orphans a client that has a part of its response gets the rest, and one that has sent a part of its request an answer" do
      server = Server.start(ru: slow, options: { MaxWorkers: 2 })
      peers = [HttpPeer.new(server, receive_buffer: 4096).write("GET / HTTP/1.0\r\n\r\n"),
               HttpPeer.new(server).write("POST / HTTP/1.0\r\nContent-Length: 10\r\n\r\nabc")]
      peers.first.read_until_size(1)
      eventually { peers.last.taken? }
      kill_master(server)
      eventually { server.refused? }
      peers.last.write("defghij")
      expect(HttpResponse.parse(peers.last.read_to_end).body).to eq("10")
      expect(HttpResponse.parse(peers.first.read_to_end).body.bytesize).to eq(16_000_000)
      eventually { server.processes.empty? }
    end

    it "B-orphans no client keeps a worker for longer than GracefulTimeout" do
      server = Server.start(ru: slow, options: { MaxWorkers: 1, GracefulTimeout: 1 })
      HttpPeer.open(server) do |peer|
        peer.write("GET / HTTP/1.0\r\n\r\n").read_until_size(1)
        worker = server.workers.first
        kill_master(server)
        eventually { server.processes.empty? }
        expect(server.log).to include("fastrack: worker 0 (pid #{worker}) has not finished within 1 s after the end of its master: ending it\n")
      end
    end

    it "B-orphans a worker whose hook hangs ends with its master, and holds no port" do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 1 }, config: <<~CONFIG)
        after_fork { File.exist?("hang") && File.write("hangs", "") && sleep }
      CONFIG
      server.await_ready
      server.write("hang", "")
      server.signal(:TTIN)
      server.await_file("hangs")
      kill_master(server)
      eventually { server.processes.empty? }
      expect(server.log).to match(/^fastrack: worker 1 \(pid \d+\) has not booted when its master ended: ending it$/)
    end

    it "B-orphans hooks have a time of their own after the last client" do
      limit = GcMode.patient(6)
      server = Server.start(ru: slow, options: { GracefulTimeout: limit }, config: <<~CONFIG)
        max_workers 1
        before_worker_shutdown { sleep #{limit * 0.6}; File.write("hook", "done") }
      CONFIG
      HttpPeer.open(server) do |peer|
        peer.write("GET / HTTP/1.0\r\n\r\n").read_until_size(1)
        kill_master(server)
        # A part of the client's time, so that the hook ends after it, and within its own.
        sleep(limit * 0.5)
        expect(HttpResponse.parse(peer.read_to_end).body.bytesize).to eq(16_000_000)
      end
      eventually { server.processes.empty? }
      expect(server.lines_of("hook")).to eq(["done"])
    end
  end

  describe "kill -9 of the master while requests last" do
    # GET /stream sends a part every moment, without end.
    endless = <<~'RUBY'
      endless = Enumerator.new { |parts| loop { parts << "part\n"; sleep 0.05 } }
      run ->(env) { env["PATH_INFO"] == "/stream" ? [200, {}, endless] : [200, {}, [Process.pid.to_s]] }
    RUBY

    { "one thread" => {}, "three threads" => { MaxThreads: 3 } }.each do |threads, options|
      it "B-orphans workers of #{threads} give the address up at once, a new server takes it, and each request is answered" do
        FreePort.keep do |port|
          server = Server.ready(ru: Rackups::GATE, options: { MaxWorkers: 2, Port: port, **options })
          request = SlowRequest.new(server)
          kill_master(server)
          eventually { server.refused? }
          expect(Server.start(ru: Rackups::PID, options: { Port: port }).get.status).to eq(200)
          expect(server.processes).to eq([request.pid])
          expect(request.finish.status).to eq(200)
          eventually { server.processes.empty? }
        end
      end
    end

    it "B-orphans every thread has a request: the address is given up, and each request is answered" do
      server = Server.ready(ru: <<~'RUBY', options: { MaxWorkers: 1, MaxThreads: 2 })
        run ->(env) { File.write(env["PATH_INFO"][1..], ""); sleep 0.01 until File.exist?("go"); [200, {}, ["done"]] }
      RUBY
      requests = %w[a b].map { |name| HttpPeer.new(server).write("GET /#{name} HTTP/1.0\r\n\r\n").tap { server.await_file(name) } }
      kill_master(server)
      eventually { server.refused? }
      server.write("go", "")
      expect(requests.map { |peer| HttpResponse.parse(peer.read_to_end).body }).to eq(%w[done done])
      eventually { server.processes.empty? }
    end

    it "B-orphans a client that waits in the backlog gets its answer" do
      server = Server.ready(ru: Rackups::GATE, options: { MaxWorkers: 1 })
      request = SlowRequest.new(server)
      server.signal(:STOP, to: request.pid)
      peer = HttpPeer.new(server).write("GET / HTTP/1.0\r\n\r\n")
      kill_master(server)
      server.signal(:CONT, to: request.pid)
      eventually { server.refused? }
      expect(request.finish.status).to eq(200)
      expect(HttpResponse.parse(peer.read_to_end).status).to eq(200)
    end

    { "a request" => [Rackups::GATE, "/slow", {}], "a stream" => [endless, "/stream", { MaxThreads: 2 }] }.each do |what, (ru, path, options)|
      it "B-orphans #{what} without an end gives the address up at once, and keeps the worker for GracefulTimeout only" do
        server = Server.ready(ru: ru, options: { MaxWorkers: 1, GracefulTimeout: 1, **options })
        peer = HttpPeer.new(server).write("GET #{path} HTTP/1.1\r\nHost: h\r\n\r\n")
        what == "a stream" ? peer.read_until_size(1) : server.await_file("started")
        worker = server.workers.first
        kill_master(server)
        eventually { server.refused? }
        eventually { server.processes.empty? }
        expect(server.log).to include("worker 0 (pid #{worker}) has not finished within 1 s after the end of its master: ending it\n")
      end
    end

    it "B-orphans a hook of generation 0 that hangs holds no port" do
      server = Server.ready(ru: Rackups::PID, options: { MaxWorkers: 1 }, config: <<~CONFIG)
        before_fork { File.exist?("hang") && File.write("hangs", "") && sleep }
      CONFIG
      server.write("hang", "")
      server.signal(:TTIN)
      server.await_file("hangs")
      kill_master(server)
      eventually { server.processes.empty? }
    end
  end

  { "a hook" => "before_fork { $child ||= fork { sleep }.tap { |pid| File.write('child', pid.to_s) } }",
    "a thread" => "before_fork { $child ||= Thread.new { fork { sleep }.tap { |pid| File.write('child', pid.to_s) } } }",
    "after_fork" => "after_fork { |_, worker| fork { sleep }.tap { |pid| File.write('child', pid.to_s) } if worker.nr == 0 }" }
    .each do |what, config|
    describe "a process that #{what} forks", once: nil do
      let(:server) { Server.start(ru: Rackups::PID, options: { MaxWorkers: 2 }, config: config) }
      let(:child) { eventually { server.get && server.lines_of("child").first&.to_i } }

      after { Process.kill(:KILL, child) if ProcessTable.alive?(child) }

      it "B-orphans keeps no worker alive when the master is killed, and not the port" do
        child
        kill_master(server)
        # The child lets go of the port in its own time.
        eventually { server.processes == [child] && server.refused? }
      end

      it "B-fork has none of the server's sockets and pipes, and is ended by TERM" do
        # What this process has, the server may have from it.
        inherited = ProcessTable.descriptors(Process.pid).values
        kept = -> { (ProcessTable.descriptors(child).values - inherited).grep(/\A(?:socket|pipe):/) }
        eventually(20, kept) { kept.call.empty? }
        server.signal(:TERM, to: child)
        eventually { !ProcessTable.alive?(child) }
        expect(server.get.status).to eq(200)
      end
    end
  end
end
