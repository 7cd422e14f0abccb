# frozen_string_literal: true

require "fastrack/version"

RSpec.describe "A server inside another process" do
  it "serves in threads of that process, which keeps its signals, title and output, and has nothing of it after a stop" do
    result = InProcess.run(<<~'RUBY')
      before = facts
      app = ->(env) { [200, {}, [env.values_at("rack.multithread", "rack.multiprocess", "SERVER_NAME", "SERVER_PORT", "rack.url_scheme").push(Process.pid).to_json]] }
      server = Fastrack::Server.new(app).start
      seen = JSON.parse(request(server).body)
      # One thread may answer before the others have begun.
      wait_until { facts[:helpers] == Fastrack::Server::THREADS }
      during = facts
      raise "not started" unless server.running? && server.addresses == ["127.0.0.1:#{server.port}"]
      raise seen.inspect unless seen == [true, false, "127.0.0.1", server.port.to_s, "http", Process.pid]
      raise during.inspect unless during.slice(:signals, :title) == before.slice(:signals, :title)
      raise "not stopped" unless server.stop && !server.running? && server.stop.nil?
      wait_until { facts == before }
      begin
        request(server)
        raise "it still listens"
      rescue Errno::ECONNREFUSED
        puts "fine"
      end
    RUBY
    expect([result.output, result.status.exitstatus]).to eq(["fine\n", 0])
  end

  it "serves Rack 3's streaming bodies where the program has not loaded Rack" do
    facts = InProcess.json(<<~'RUBY')
      raise "Rack is loaded" if defined?(Rack)
      app = lambda do |env|
        [200, { "x-finished" => env.key?("rack.response_finished").to_s }, ->(stream) { stream.write("streamed") && stream.close }]
      end
      server = Fastrack::Server.new(app).start
      response = request(server)
      puts JSON.generate(status: response.code, body: response.body, finished: response["x-finished"])
      server.stop
    RUBY
    expect(facts).to eq(status: "200", body: "streamed", finished: "true")
  end

  it "is in the main Ractor only: the extension keeps objects that others must not touch" do
    facts = InProcess.json(<<~'RUBY')
      Fastrack::Server.new(->(_) {})
      ractor = Ractor.new { Fastrack.trim_heap }
      begin
        ractor.public_send(ractor.respond_to?(:take) ? :take : :value)
      rescue => error
        puts JSON.generate(cause: error.cause.class.name)
      end
    RUBY
    expect(facts).to eq(cause: "Ractor::UnsafeError")
  end

  it "serves an app that calls itself, on connections that are kept alive, too" do
    answers = InProcess.json(<<~'RUBY')
      inner = nil
      app = ->(env) { env["PATH_INFO"] == "/outer" ? [200, {}, [inner.get("/inner").body]] : [200, {}, ["inner"]] }
      server = Fastrack::Server.new(app).start
      # More connections than threads: some belong to the engine that is busy with the outer request.
      inners = Array.new(9) { Net::HTTP.start("127.0.0.1", server.port).tap { |http| http.read_timeout = 60; http.get("/") } }
      answers = inners.flat_map do |one|
        inner = one
        (inners - [one]).map { |outer| outer.get("/outer").body }
      end
      inners.each(&:finish)
      server.stop
      puts answers.tally.to_json
    RUBY
    expect(answers).to eq({ inner: 72 })
  end

  it "answers the requests that have begun when it is told to stop, and does not wake an app that sleeps" do
    seen = InProcess.json(<<~'RUBY')
      slept = begun = nil
      app = lambda do |env|
        next [200, {}, ["quick"]] unless env["PATH_INFO"] == "/slow"
        begun = true
        before = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        sleep 0.7
        slept = Process.clock_gettime(Process::CLOCK_MONOTONIC) - before
        [200, {}, ["slow"]]
      end
      server = Fastrack::Server.new(app).start
      idle = Net::HTTP.start("127.0.0.1", server.port).tap { |http| http.get("/") }
      slow = Thread.new { request(server, "/slow").body }
      wait_until { begun }
      stopped = server.stop
      socket = idle.instance_variable_get(:@socket).io
      puts({ stopped: stopped, slow: slow.value, whole: slept >= 0.7, idle: socket.read }.to_json)
    RUBY
    expect(seen).to eq({ stopped: true, slow: "slow", whole: true, idle: "" })
  end

  { "max_threads: 5" => 5, "threads: 5" => 5, "max_threads: 1" => 1 }.each do |option, count|
    it "has #{count} of seven requests in the app at once with #{option}, and a stop returns when all are answered" do
      seen = InProcess.json(<<~RUBY)
        before = facts
        lock = Mutex.new
        inside = most = done = 0
        go = false
        app = lambda do |env|
          lock.synchronize { most = [most, inside += 1].max }
          sleep 0.005 until go
          lock.synchronize { inside -= 1; done += 1 }
          [200, {}, [env["rack.multithread"].to_s]]
        end
        server = Fastrack::Server.new(app, #{option}).start
        clients = Array.new(7) { TCPSocket.new("127.0.0.1", server.port).tap { |client| client.write("GET / HTTP/1.0\\r\\n\\r\\n") } }
        wait_until { inside == #{count} }
        stop = Thread.new { [server.stop, done] }
        go = true
        puts({ answers: clients.map { |client| client.read.lines.last.tap { client.close } }, most: most, stopped: stop.value, left: wait_until { facts == before } }.to_json)
      RUBY
      expect(seen).to eq({ answers: [(count > 1).to_s] * 7, most: count, stopped: [true, 7], left: true })
    end
  end

  it "cuts off a request that lasts longer than a stop may, and lets its ensure blocks run" do
    seen = InProcess.json(<<~'RUBY')
      before = facts
      ensured = begun = nil
      app = lambda do |_env|
        begun = true
        sleep
      ensure
        ensured = true
      end
      server = Fastrack::Server.new(app, graceful_timeout: 0.2).start
      client = TCPSocket.new("127.0.0.1", server.port)
      client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
      wait_until { begun }
      stopped = server.stop
      bytes = client.read
      client.close
      puts({ stopped: stopped, ensured: ensured, bytes: bytes, left: wait_until { facts == before } }.to_json)
    RUBY
    expect(seen).to include(stopped: false, ensured: true, left: true)
    expect(seen[:bytes]).to match(/\A(?:HTTP\/1\.1 50\d |\z)/)
  end

  it "has neighbours of its own kind, which stop without it, and one on a unix socket whose file goes" do
    seen = InProcess.json(<<~'RUBY')
      servers = Array.new(6) { |index| Fastrack::Server.new(->(_env) { [200, {}, [index.to_s]] }, threads: 2).start }
      local = Fastrack::Server.new(->(env) { [200, {}, [env["SERVER_NAME"]]] }, path: "app.sock").start
      servers[1].stop
      bodies = (servers - [servers[1]]).map { |server| request(server).body }
      socket = UNIXSocket.new("app.sock")
      socket.write("GET / HTTP/1.0\r\n\r\n")
      unix = socket.read.lines.last
      there = File.socket?("app.sock")
      [*servers, local].each(&:stop)
      wait_until { helpers.zero? }
      puts({ bodies: bodies, unix: unix, there: there, after: File.exist?("app.sock"), url: local.url, port: local.port,
             addresses: local.addresses == [File.expand_path("app.sock")], helpers: helpers }.to_json)
    RUBY
    expect(seen).to eq({ bodies: %w[0 2 3 4 5], unix: "localhost", there: true, after: false, url: nil, port: nil, addresses: true, helpers: 0 })
  end

  it "is not in the children that its process forks, which may have servers of their own" do
    seen = InProcess.json(<<~'RUBY')
      server = Fastrack::Server.new(->(_env) { [200, {}, [Process.pid.to_s]] }).start
      kept = Net::HTTP.start("127.0.0.1", server.port).tap { |http| http.get("/") }
      reader, writer = IO.pipe
      child = fork do
        sockets = Dir.glob("/proc/self/fd/*").filter_map { |fd| File.readlink(fd) rescue nil }.grep(/\Asocket:/)
        # The client's end of the kept connection is the process's own.
        facts = [server.running?, server.stop, sockets.size]
        own = Fastrack::Server.new(->(_env) { [200, {}, [Process.pid.to_s]] }).start
        served = request(own).body.to_i == Process.pid
        GC.start
        writer.puts [*facts, served, own.stop].to_json
      end
      _, status = Process.wait2(child)
      again = kept.get("/").body.to_i == Process.pid
      begun = fork { sleep }
      server.stop
      # The child would hold the port and the connection.
      refused = begin
        request(server)
      rescue Errno::ECONNREFUSED
        true
      end
      ended = kept.instance_variable_get(:@socket).io.read
      Process.kill(:KILL, begun)
      Process.wait(begun)
      puts({ child: JSON.parse(reader.gets), status: status.exitstatus, again: again, refused: refused, ended: ended }.to_json)
    RUBY
    expect(seen).to eq({ child: [false, nil, 1, true, true], status: 0, again: true, refused: true, ended: "" })
  end

  it "does not keep its process from ending, whatever its requests are at, and the status is the process's" do
    result = InProcess.run(<<~'RUBY')
      begun = nil
      server = Fastrack::Server.new(->(_env) { begun = true; sleep }).start
      Thread.new { request(server) rescue nil }
      wait_until { begun }
      at_exit { puts request(Fastrack::Server.new(->(_env) { [200, {}, ["started at the end"]] }).start).body }
      exit 7
    RUBY
    expect([result.output, result.status.exitstatus]).to eq(["started at the end\n", 7])
  end

  it "leaves INT and TERM to its process" do
    program = InProcess.new(<<~'RUBY')
      server = Fastrack::Server.new(->(_env) { [200, {}, []] }).start
      begin
        puts "ready"
        server.run
      rescue Interrupt
        puts "interrupted: #{server.stop}"
        sleep
      end
    RUBY
    eventually { program.output.include?("ready") }
    Process.kill(:INT, program.pid)
    eventually(20, -> { program.output }) { program.output.include?("interrupted: true") }
    Process.kill(:TERM, program.pid)
    expect(program.wait.termsig).to eq(Signal.list["TERM"])
  ensure
    program&.end_now
  end

  it "works in a worker, beside its engine: for its figures, for example" do
    config = <<~'RUBY'
      after_worker_ready do
        $figures = Fastrack::Server.new(->(_env) { [200, {}, ["figures of #{Process.pid}"]] }, threads: 1).start
        File.write("port.#{Process.pid}", $figures.port.to_s)
      end
    RUBY
    server = Server.start(ru: Rackups::PID, options: { MaxWorkers: 1 }, config: config)
    figures = lambda do |worker|
      port = eventually { server.lines_of("port.#{worker}").first }
      HttpResponse.ask(TCPSocket.new("127.0.0.1", port.to_i)).body
    end
    worker = server.await_workers(1).first
    expect([figures.call(worker), server.get.body]).to eq(["figures of #{worker}", worker.to_s])
    successor = server.renew([worker]).first
    expect([figures.call(successor), server.get.body]).to eq(["figures of #{successor}", successor.to_s])
    expect(server.stop.exitstatus).to eq(0)
  end

  it "returns from run when another thread has stopped it" do
    seen = InProcess.json(<<~'RUBY')
      server = Fastrack::Server.new(->(_env) { [200, {}, ["served"]] })
      running = Thread.new { server.run.equal?(server) }
      wait_until { server.running? }
      body = request(server).body
      server.stop
      puts({ body: body, run: running.value, again: (server.start rescue $!.message) }.to_json)
    RUBY
    expect(seen).to eq({ body: "served", run: true, again: "a server starts once; make a new one" })
  end

  it "outlives a request that exits, that raises, that sets itself a time limit, and that wants to stop it" do
    result = InProcess.run(<<~'RUBY')
      server = nil
      app = lambda do |env|
        case env["PATH_INFO"]
        when "/exit" then exit(3)
        when "/raise" then raise Exception, "as assertions do"
        when "/limit" then env["fastrack.timeout"].call(0.05) || sleep(0.5)
        when "/stop" then begin
          server.stop
        rescue Fastrack::Error => e
          next [200, {}, [e.message]]
        end
        end
        [200, {}, ["served"]]
      end
      errors = StringIO.new
      server = Fastrack::Server.new(app, threads: 1, errors: errors).start
      exited = (request(server, "/exit") rescue nil)&.code
      puts({ exited: [nil, "500", "502"].include?(exited), raised: request(server, "/raise").code, errors: errors.string[/as assertions do/],
             limit: request(server, "/limit").body, stop: request(server, "/stop").body, stopped: server.stop }.to_json)
    RUBY
    lines = result.output.lines
    expect(lines.size).to eq(2)
    expect(lines.first).to match(/\Afastrack: exit \(SystemExit\) in a request, at \S+:\d+:in .+: ignored in a server inside another process\n\z/)
    expect(JSON.parse(lines.last, symbolize_names: true)).to eq(
      { exited: true, raised: "500", errors: "as assertions do", limit: "served",
        stop: "a request cannot wait for its server's end: call stop on another thread", stopped: true }
    )
  end

  it "takes options that concern clients, refuses others, and reads neither a ConfigFile nor the environment" do
    files = { "config/fastrack.rb" => "port 1\nkeep_alive false\nraise 'it was read'\n" }
    seen = InProcess.json(<<~'RUBY', environment: { "PORT" => "1", "WEB_CONCURRENCY" => "many" }, files: files)
      app = ->(_env) { [200, {}, []] }
      refused = [{ MaxWorkers: 2 }, { request_timeout: 1 }, { keep_alife: true }, { Port: "http" }, { threads: 0 }, { max_threads: 513 }].map do |options|
        Fastrack::Server.new(app, **options)
      rescue Fastrack::ConfigurationError => e
        e.message
      end
      refused << (Fastrack::Server.new(nil) rescue $!.message)
      log = StringIO.new
      server = Fastrack::Server.new(app, host: "localhost", Port: 0, keep_alive: false, threads: 1, log: log).start
      taken = begin
        Fastrack::Server.new(app, port: server.port).start
      rescue Fastrack::ListenError => e
        e.message == "cannot listen on 127.0.0.1:#{server.port}: the port is in use"
      end
      closing = request(server)["connection"]
      url = server.url == "http://localhost:#{server.port}"
      server.stop
      puts({ refused: refused, taken: taken, closing: closing, url: url, log: log.string.gsub(server.port.to_s, "PORT") }.to_json)
    RUBY
    expect(seen.delete(:refused)).to eq(
      ["option MaxWorkers is for a server of its own, and has no effect inside another process",
       "option request_timeout is for a server of its own, and has no effect inside another process",
       "unknown option keep_alife; did you mean keep_alive?", "option Port must be a whole number from 0 to 65535; got \"http\"",
       "threads must be a whole number from 1 to 512; got 0", "threads must be a whole number from 1 to 512; got 513",
       "the app does not respond to call: nil"]
    )
    expect(seen).to eq({ taken: true, closing: "close", url: true, log: <<~TEXT })
      Fastrack #{Fastrack::VERSION} is listening on localhost:PORT
      Fastrack has stopped listening on localhost:PORT
    TEXT
  end
end
