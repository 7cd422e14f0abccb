# frozen_string_literal: true

# A line for each request, written by the server itself.
RSpec.describe "the access log", once: "written without Ruby" do
  include Folder
  include ReexecHelpers

  let(:ru) { <<~'RUBY' }
    run lambda { |env|
      case env["PATH_INFO"]
      when "/raise" then raise "no"
      when "/hijack" then env["rack.hijack"].call.then { |io| io.write("mine") && io.close }
      when "/missing" then [404, { "content-type" => "text/plain" }, ["not ", "there"]]
      else [200, { "content-type" => "text/plain" }, ["hello"]]
      end
    }
  RUBY

  def serve(format: "combined", ru: self.ru, **options)
    Server.start(ru: ru, options: { MaxWorkers: 1, AccessLog: "access.log", AccessLogFormat: format, **options }).tap { |server| server.await_workers(options.fetch(:MaxWorkers, 1)) }
  end

  # The lines, once there are so many; those of JSON read.
  def await_lines(server, count, file = "access.log")
    Eventually.eventually(20, -> { server.lines_of(file) }) { server.lines_of(file).then { |lines| lines if lines.size >= count } }
          .map { |line| line.start_with?("{") ? JSON.parse(line) : line }
  end

  it "is as nginx writes it, and no client can forge a line or end a quoted text" do
    server = serve
    server.get("/a?b=c", { "User-Agent" => "spec", "Referer" => "http://h/\"\\" })
    server.get("/missing")
    server.get("/\"", { "User-Agent" => "\xE2\x80\xA8\x80\t\"".b })
    lines = await_lines(server, 3)
    time = %r{\[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000\]}
    expect(lines).to match([%r{\A127\.0\.0\.1 - - #{time} "GET /a\?b=c HTTP/1\.1" 200 5 "http://h/\\x22\\x5c" "spec"\z},
                            %r{\A127\.0\.0\.1 - - #{time} "GET /missing HTTP/1\.1" 404 9 "-" "-"\z},
                            %r{\A127\.0\.0\.1 - - #{time} "GET /\\x22 HTTP/1\.1" 200 5 "-" "\\xe2\\x80\\xa8\\x80\\x09\\x22"\z}])
  end

  it "says more in JSON: times, worker, request id" do
    server = serve(format: "json")
    server.get("/a", { "X-Request-ID" => "r\"1", "X-Request-Start" => "t=#{Time.now.to_f - 2}" })
    server.get("/raise")
    one, two = await_lines(server, 2)
    expect(one).to include("status" => 200, "bytes" => 5, "worker" => 0, "pid" => server.workers.first, "remote_addr" => "127.0.0.1",
                           "method" => "GET", "target" => "/a", "request_id" => "r\"1", "user_agent" => nil, "referer" => nil)
    expect([one["time"], one["queue_time"]]).to match([/\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\z/, be >= 2])
    expect(one["duration"]).to be > 0
    expect(two).to include("status" => 500, "target" => "/raise", "request_id" => nil)
  end

  it "has a line for a request that took too long" do
    server = serve(ru: HangingApp::RU, format: "json", RequestTimeout: 0.3)
    # A worker that ends has a moment for its last lines, in which a busy machine may write none.
    Eventually.eventually { server.get("/sleep", { "X-Request-ID" => "late" }) && server.lines_of("access.log").any? }
    expect(await_lines(server, 1).first).to include("status" => 504, "target" => "/sleep", "request_id" => "late", "duration" => be >= 0.25)
  end

  it "has no second line for a request whose callbacks took too long" do
    app = <<~RUBY
      run lambda { |env|
        late = lambda do
          # The response has its line.
          sleep 0.01 until File.size?("access.log")
          env["fastrack.timeout"].call(0.2)
          sleep
        end
        env["rack.after_reply"] << late if env["PATH_INFO"] == "/late"
        [200, {}, ["hello"]]
      }
    RUBY
    server = serve(ru: app, format: "json")
    %w[/late /next].each { |path| server.get(path) }
    expect(await_lines(server, 2).map { |line| line.values_at("target", "status") }).to eq([["/late", 200], ["/next", 200]])
  end

  it "is reopened by USR1, in all workers, and no line is lost or mixed with another" do
    server = serve(MaxWorkers: 2, MaxRequestPerChild: 0)
    clients = Array.new(4) do |number|
      Thread.new { HttpPeer.exchange(server, "#{"GET /#{number} HTTP/1.1\r\nHost: h\r\n\r\n" * 250}GET /end HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n") }
    end
    File.rename(server.file("access.log"), server.file("access.log.1"))
    server.signal(:USR1)
    clients.each(&:value)
    server.await_file("access.log")
    all = Eventually.eventually do
      server.get("/new") if server.lines_of("access.log").empty?
      lines = %w[access.log.1 access.log].flat_map { |file| server.lines_of(file) }
      lines if lines.grep(%r{GET /(?:\d|end) }).size == 1004 && server.lines_of("access.log").any?
    end
    expect(all).to all(match(%r{\A127\.0\.0\.1 - - \[[^\]]+\] "GET /\w+ HTTP/1\.1" 200 5 "-" "-"\z}))
  end

  it "is another file from a HUP on, or none" do
    server = Server.ready(ru: ru, options: { MaxWorkers: 1 }, config: %(access_log "one.log"\n))
    server.get("/first")
    await_lines(server, 1, "one.log")
    server.reload(%(access_log "two.log"\n))
    # Which the worker writes whole when it ends.
    server.await_ready(2).get("/second")
    old = server.await_workers(1)
    server.reload("")
    # The old worker may still take a client when the new one is ready.
    server.await_others(old)
    server.get("/third")
    server.stop
    expect(%w[one.log two.log].flat_map { |file| server.lines_of(file) }).to match([%r{GET /first }, %r{GET /second }])
  end

  it "goes to stdout as -" do
    server = serve(AccessLog: "-")
    server.get("/out")
    server.await_log(%r{^127\.0\.0\.1 - - .* "GET /out HTTP/1\.1" 200 5 "-" "-"$})
  end

  it "does not wait for the reader of a FIFO, which finds the lines when it comes" do
    File.mkfifo(path = File.join(@dir, "fifo"))
    server = serve(AccessLog: path)
    server.get("/early")
    File.open(path) { |reader| expect(reader.gets).to include("GET /early HTTP/1.1") }
    server.get("/late")
    File.open(path) { |reader| expect(reader.gets).to include("GET /late HTTP/1.1") }
  end

  it "loses its lines where there is no room, and says how many, and each counts once", linux: "/dev/full" do
    server = serve(AccessLog: "/dev/full", Pid: "app.pid")
    monitor = MonitorClient.new(server.file("app.control"))
    3.times { server.get("/lost") }
    Eventually.eventually do
      server.get("/next")
      server.log.match?(/^fastrack: the access log has not taken \d+ lines, which are dropped: no storage space/)
    end
    # The first lines may have been dropped before the others.
    Eventually.eventually { server.get("/next") && monitor.metrics["fastrack_access_log_lines_dropped_total"] >= 3 }
    expect(monitor.metrics["fastrack_access_log_lines_total"]).to eq(0)
  end

  it "drops lines rather than wait for a reader that hangs, counts them, and says so" do
    File.mkfifo(path = File.join(@dir, "fifo"))
    reader = File.open(path, "r+")
    server = serve(AccessLog: path, MaxRequestPerChild: 0)
    request = "GET /#{"a" * 1_700} HTTP/1.1\r\nHost: h\r\n\r\n"
    # Beyond the pipe's 64 KiB and what the worker keeps: two batches of a megabyte, if the one that writes them is late.
    2.times do
      text, = HttpPeer.exchange(server, "#{request * 999}#{request.sub("\r\n\r\n", "\r\nConnection: close\r\n\r\n")}")
      expect(text.scan("hello").size).to eq(1000)
    end
    # It says so now and then, when it has something to do.
    Eventually.eventually { server.get && server.log[/^fastrack: the access log has not taken \d+ lines, which are dropped: it is stuck \(worker \d+\)$/] }
    reader.close
  end
end
