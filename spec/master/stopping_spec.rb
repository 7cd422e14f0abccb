# frozen_string_literal: true

RSpec.describe "Stopping", once: "processes and signals" do
  # A server, and a request that is in its app.
  def busy(**options)
    server = Server.start(ru: Rackups::GATE, options: { MaxWorkers: 2 }.merge(options))
    [server, SlowRequest.new(server)]
  end

  %i[TERM QUIT].each do |signal|
    it "#{signal == :TERM ? "A10" : "B-#{signal}"} #{signal} lets requests finish, also when it comes again, and ends the server with status 0 and no process left" do
      server, request = busy
      server.await_workers(2)
      2.times do
        server.signal(signal)
        # The one that is not at a request goes at once.
        eventually { server.workers == [request.pid] }
      end
      expect([request.finish.body.to_i, server.wait.exitstatus, server.processes]).to eq([request.pid, 0, []])
    end
  end

  it "tells a worker again to stop that has missed the signal" do
    server = Server.start(ru: Rackups::GATE.sub("run ", <<~RUBY + "run "), options: { MaxWorkers: 1, GracefulTimeout: 600 })
      # As where the stack has no room for the handler.
      use(Class.new do
        define_method(:initialize) { |app| @app = app }
        define_method(:call) do |env|
          handlers = %w[TERM QUIT].to_h { |name| [name, trap(name, "IGNORE")] }
          @app.call(env).tap { handlers.each { |name, handler| trap(name, handler) } }
        end
      end)
    RUBY
    request = SlowRequest.new(server)
    server.await_ready.signal(:HUP)
    # Then it was told.
    server.await_ready(2)
    expect(request.finish.status).to eq(200)
    eventually { !ProcessTable.alive?(request.pid) }
    expect(server.log).not_to include("has not finished")
  end

  it "A10 TERM lets a slow reader have its response from its own worker, whatever another one is busy with" do
    server = Server.start(ru: Rackups::GATE.sub("[Process.pid.to_s]", "[env['PATH_INFO'] == '/large' ? 'x' * 16_000_000 : Process.pid.to_s]"),
                          options: { MaxWorkers: 2 })
    request = SlowRequest.new(server)
    peer = HttpPeer.new(server, receive_buffer: 4096).write("GET /large HTTP/1.0\r\n\r\n")
    peer.read_until_size(1)
    worker = (server.workers - [request.pid]).first
    sockets = -> { ProcessTable.alive?(worker) ? ProcessTable.descriptors(worker).values.grep(/\Asocket:/).size : 0 }
    before = sockets.call
    server.signal(:TERM)
    # It has let go of its listener.
    eventually { sockets.call < before }
    expect([HttpResponse.parse(peer.read_to_end).body.bytesize, request.finish.status]).to eq([16_000_000, 200])
    expect(server.wait.exitstatus).to eq(0)
  end

  # The second: if each of them began the stop anew, this would have no end.
  { "TERM" => :TERM, "a QUIT that comes again and again" => :QUIT }.each do |what, name|
    it "C1 a worker that does not end within GracefulTimeout after #{what} is named in the log and killed, and the server ends" do
      server, request = busy(GracefulTimeout: 1)
      eventually { server.ended? || !server.signal(name) } if name == :QUIT
      expect([server.stop(name).exitstatus, server.processes]).to eq([0, []])
      expect(server.log.scan(/^fastrack: worker \d \(pid (\d+)\) has not finished within 1 s: killing it; it is serving GET \/slow for \d+\.\d s$/)).to eq([[request.pid.to_s]])
      # Who sees SIGKILL there looks for a lack of memory.
      expect(server.log).to match(%r{^fastrack: worker \d \(pid #{request.pid}\) was killed by the master \(GracefulTimeout\) while serving GET /slow})
      expect(server.log).not_to include("SIGKILL")
    end
  end

  # A client of the only worker that has sent no more than this, and that the worker has accepted; and the worker's pid.
  def with_slow_client(server, part)
    worker = server.await_workers(1).first
    sockets = -> { ProcessTable.descriptors(worker).values.compact.grep(/\Asocket:/) }
    # A worker that has served has all of its own sockets. The client's socket may still be open.
    server.get
    before = sockets.call
    server.connect do |client|
      client.write(part)
      eventually { (sockets.call - before).any? }
      yield client, worker
    end
  end

  it "A8 a client that has connected, and sends its request when the worker is already stopping, is answered" do
    server = Server.start(ru: Rackups::PID, unix: true, options: { MaxWorkers: 1 })
    with_slow_client(server, "") do |client, worker|
      began = now
      server.signal(:HUP, to: server.master)
      # The successor is there; the worker has been told to stop.
      eventually { server.get.body.to_i != worker }
      client.write("GET / HTTP/1.0\r\n\r\n")
      answered_by = HttpResponse.parse(client.read).body.to_i
      # The worker waits for a second; then its successor gets the client.
      expect([worker, *(server.await_others([worker]) if now - began > 1)]).to include(answered_by)
    end
  end

  [false, true].each do |unix|
    it "A10 new clients are refused while the last requests are finished, on a #{unix ? "path" : "port"}" do
      server = Server.start(ru: Rackups::PID, unix: unix, options: { MaxWorkers: 1 })
      with_slow_client(server, "GET / HTTP/1.0\r\n") do |client, worker|
        server.signal(:TERM)
        eventually { server.refused? }
        client.write("\r\n")
        expect(HttpResponse.parse(client.read).body.to_i).to eq(worker)
      end
      expect(server.wait.exitstatus).to eq(0)
    end
  end

  ["", "GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"].each do |part|
    it "B-faults TERM ends the server where a client has sent no more than #{part.inspect}" do
      server = Server.start(ru: Rackups::PID, unix: true, options: { MaxWorkers: 1 })
      with_slow_client(server, part) { expect(server.stop.exitstatus).to eq(0) }
    end
  end

  it "A10 D1 at_exit hooks run once in the master, after those of its workers" do
    server = Server.start(ru: <<~'RUBY', options: { MaxWorkers: 2, MaxRequestPerChild: 2 })
      at_exit { File.write("exits", "#{$$}\n", mode: "a") }
      run ->(_env) { [200, {}, ["ok"]] }
    RUBY
    # Two are recycled; at least one more serves when the server stops.
    eventually { server.get && server.lines_of("exits").size >= 2 }
    server.stop
    pids = server.lines_of("exits")
    expect([pids.uniq, pids.size, pids.last]).to match([pids, be >= 4, server.pid.to_s])
  end

  describe "a TERM while at_exit hooks run" do
    # The master's hook waits for a file, so that the example decides when it is over.
    def app(before = "")
      <<~RUBY
        #{before}
        master = Process.pid
        at_exit do
          next unless Process.pid == master

          File.write("exits", "begun\\n")
          sleep 0.01 until File.exist?("go")
          File.write("exits", "finished\\n", mode: "a")
        end
        #{Rackups::PID}
      RUBY
    end

    # @yield once the server's hooks run
    def stopped(server)
      server.get
      server.signal(:TERM)
      eventually { server.lines_of("exits") == ["begun"] }
      yield
      server.write("go", "")
      server.wait
    end

    it "A10 does not cut them off, nor change the status" do
      server = Server.start(ru: app, options: { MaxWorkers: 1 }, fastrack: true)
      status = stopped(server) { %i[INT TERM QUIT HUP].each { |name| server.signal(name) } }
      expect([status.exitstatus, server.lines_of("exits")]).to eq([0, %w[begun finished]])
    end

    it "A10 is given to the program's own handler, where it has one" do
      server = Server.start(ru: app('trap("TERM") { File.write("heard", "TERM\n") }'), options: { MaxWorkers: 1 })
      stopped(server) do
        server.signal(:TERM)
        eventually { server.lines_of("heard") == ["TERM"] }
      end
    end
  end

  it "A10 TERM ends a server at once whose workers are stuck in after_fork" do
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 2 }, config: <<~RUBY)
      after_fork { File.write("stuck", ".", mode: "a"); sleep }
    RUBY
    eventually { server.lines_of("stuck") == [".."] }
    expect([server.stop.exitstatus, server.processes]).to eq([0, []])
  end

  it "A10 what workers have written to stdout is not lost, though they are killed, nor written twice" do
    server = Server.start(ru: <<~RUBY, options: { MaxWorkers: 1 })
      puts "loaded"
      run ->(_env) { puts "served"; Process.kill(:KILL, Process.pid) }
    RUBY
    server.raw("GET / HTTP/1.0\r\n\r\n")
    server.await_log("was killed by SIGKILL").stop
    expect([server.log.scan("loaded").size, server.log.scan("served").size]).to eq([1, 1])
  end

  it "TERM ends the server though its master gets one signal after the other" do
    3.times do
      server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 1, ControlPath: "control" })
      server.await_workers(1)
      # Which Ruby takes without a word. It sends this one itself.
      storm = Thread.new do
        loop { Process.kill(:VTALRM, server.pid) }
      rescue Errno::ESRCH
        nil
      end
      expect(server.stop.exitstatus).to eq(0)
      storm.join
    end
  end

  # Where puma 8 hung in 4 of 10 stops. Half of the servers are stopped before all of their workers are up.
  # The app notes each request that has begun, and gives a stop some time to come in between.
  let(:app) { 'run ->(_env) { File.write("begun", ".", mode: "a"); sleep 0.002; [200, {}, [Process.pid.to_s]] }' }

  it "B-faults TERM ends a server under load again and again, and no accepted request is cut off" do
    20.times do |index|
      server = Server.start(ru: app, rackup: false, options: { MaxWorkers: 2 })
      server.await_workers(2) if index.even?
      clients = Array.new(4) { Thread.new { ask_until_refused(server) } }
      eventually { clients.sum { |client| client[:answered].to_i }.positive? }
      expect([server.stop.exitstatus, server.processes]).to eq([0, []])
      bodies = clients.flat_map(&:value)
      expect([bodies.size, bodies]).to match([server.lines_of("begun").first.size, all(match(/\A\d+\z/))])
    end
  end

  # @return [Array<String>] the bodies of all responses; a raw string stands for a response that is none
  def ask_until_refused(server)
    bodies = []
    loop do
      bytes = server.raw("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
      # Connections in the backlog are reset with the listener: nobody has accepted them.
      return bodies if bytes.empty?

      bodies << HttpResponse.parse(bytes).body
      Thread.current[:answered] = bodies.size
    end
  rescue Errno::ECONNREFUSED, Errno::ECONNRESET, Errno::EPIPE
    bodies
  end
end
