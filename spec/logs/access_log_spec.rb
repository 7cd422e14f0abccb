# frozen_string_literal: true

require "json"
require "support/hanging_app"
require "support/http_peer"
require "support/monitor_client"
require "support/reexec_helpers"

# A line for each request, written by the server itself.
RSpec.describe "the access log" do
  include ReexecHelpers

  let(:ru) do
    <<~'RUBY'
      run lambda { |env|
        case env["PATH_INFO"]
        when "/raise" then raise "no"
        when "/hijack" then env["rack.hijack"].call.then { |io| io.write("mine") && io.close }
        when "/missing" then [404, { "content-type" => "text/plain" }, ["not ", "there"]]
        else [200, { "content-type" => "text/plain" }, ["hello"]]
        end
      }
    RUBY
  end

  def serve(format: "combined", **options)
    Server.start(ru: ru, options: { MaxWorkers: 1, AccessLog: "access.log", AccessLogFormat: format, **options }).await_listening
  end

  def get(server, target, *fields)
    HttpPeer.exchange(server, "GET #{target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n#{fields.map { |field| "#{field}\r\n" }.join}\r\n")
  end

  # The lines, once there are so many.
  def await_lines(server, count, file = "access.log")
    Eventually.eventually { server.lines_of(file).then { |lines| lines if lines.size >= count } }
  end

  it "is as nginx writes it, and no client can forge a line or end a quoted text" do
    server = serve
    get(server, "/a?b=c", "User-Agent: spec", "Referer: http://h/\"\\")
    get(server, "/missing")
    get(server, "/\"", "User-Agent: \xE2\x80\xA8\x80\t\"".b)
    lines = await_lines(server, 3)
    time = %r{\[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000\]}
    expect(lines).to match([
      %r{\A127\.0\.0\.1 - - #{time} "GET /a\?b=c HTTP/1\.1" 200 5 "http://h/\\x22\\x5c" "spec"\z},
      %r{\A127\.0\.0\.1 - - #{time} "GET /missing HTTP/1\.1" 404 9 "-" "-"\z},
      %r{\A127\.0\.0\.1 - - #{time} "GET /\\x22 HTTP/1\.1" 200 5 "-" "\\xe2\\x80\\xa8\\x80\\x09\\x22"\z}
    ])
  end

  it "says more in JSON: times, worker, request id" do
    server = serve(format: "json")
    get(server, "/a", "X-Request-ID: r\"1", "X-Request-Start: t=#{Time.now.to_f - 2}")
    get(server, "/raise")
    one, two = await_lines(server, 2).map { |line| JSON.parse(line) }
    expect(one).to include("status" => 200, "bytes" => 5, "worker" => 0, "pid" => server.workers.first, "remote_addr" => "127.0.0.1",
                           "method" => "GET", "target" => "/a", "request_id" => "r\"1", "user_agent" => nil, "referer" => nil)
    expect(one["time"]).to match(/\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\z/)
    expect(one["queue_time"]).to be_between(2, 20)
    expect(one["duration"]).to be_between(0.000001, 20)
    expect(two).to include("status" => 500, "target" => "/raise", "request_id" => nil)
  end

  it "has a line for a request that took too long" do
    server = Server.start(ru: HangingApp::RU, options: { MaxWorkers: 1, AccessLog: "access.log", AccessLogFormat: "json", RequestTimeout: 0.3 })
    server.await_workers(1)
    get(server, "/sleep", "X-Request-ID: late")
    line = JSON.parse(await_lines(server, 1).first)
    expect(line).to include("status" => 504, "target" => "/sleep", "request_id" => "late")
    expect(line["duration"]).to be_between(0.25, 30)
  end

  # What else happens to such requests is in crash_spec.rb.
  { "calls exit!" => "exit!(3)", "crashes" => "Process.kill(:SEGV, Process.pid)" }.each do |what, code|
    it "has a line for a request that #{what}, with the 502 that its client gets, and after those of requests before it" do
      app = %(run ->(env) { env["PATH_INFO"] == "/end" ? #{code} : [200, {}, ["hello"]] })
      server = Server.start(ru: app, options: { MaxWorkers: 1, AccessLog: "access.log", AccessLogFormat: "json" })
      server.await_workers(1)
      get(server, "/before")
      expect(get(server, "/end", "X-Request-ID: last").first).to start_with("HTTP/1.1 502")
      get(server, "/next")
      lines = await_lines(server, 3).map { |line| JSON.parse(line) }
      expect(lines.map { |line| line.values_at("target", "status", "request_id") }).to eq([["/before", 200, nil], ["/end", 502, "last"], ["/next", 200, nil]])
    end
  end

  it "has no second line for a request whose callbacks took too long" do
    app = 'run lambda { |env| env["rack.after_reply"] << -> { sleep(60) if env["PATH_INFO"] == "/late" }; [200, {}, ["hello"]] }'
    server = Server.start(ru: app, options: { MaxWorkers: 1, AccessLog: "access.log", AccessLogFormat: "json", RequestTimeout: 0.3 })
    server.await_workers(1)
    get(server, "/late")
    get(server, "/next")
    expect(await_lines(server, 2).map { |line| JSON.parse(line).values_at("target", "status") }).to eq([["/late", 200], ["/next", 200]])
  end

  it "is reopened by USR1, in all workers, and no line is lost or mixed with another" do
    server = serve(MaxWorkers: 2, MaxRequestPerChild: 0)
    clients = Array.new(4) do |number|
      Thread.new { HttpPeer.exchange(server, "#{"GET /#{number} HTTP/1.1\r\nHost: h\r\n\r\n" * 250}GET /end HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n") }
    end
    File.rename(File.join(server.dir, "access.log"), File.join(server.dir, "access.log.1"))
    server.signal(:USR1)
    clients.each(&:value)
    Eventually.eventually { File.exist?(File.join(server.dir, "access.log")) }
    all = Eventually.eventually do
      get(server, "/new") if server.lines_of("access.log").empty?
      lines = %w[access.log.1 access.log].flat_map { |file| server.lines_of(file) }
      lines if lines.grep(%r{GET /(?:\d|end) }).size == 1004 && server.lines_of("access.log").any?
    end
    expect(all).to all(match(%r{\A127\.0\.0\.1 - - \[[^\]]+\] "GET /\w+ HTTP/1\.1" 200 5 "-" "-"\z}))
  end

  it "is another file from a HUP on, or none" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1 }, config: %(access_log "one.log"\n))
    logged = lambda do |file, target|
      HttpPeer.exchange(server, "GET #{target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
      Eventually.eventually { server.lines_of(file).any? { |one| one.include?(target) } }
    end
    Eventually.eventually { server.log.scan("is ready").size == 1 }
    logged.call("one.log", "/first")
    { 2 => %(access_log "two.log"\n), 3 => "" }.each do |times, config|
      server.write("fastrack.rb", config)
      server.signal(:HUP)
      Eventually.eventually { server.log.scan("is ready").size == times }
      logged.call("two.log", "/second") if times == 2
    end
    HttpPeer.exchange(server, "GET /third HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    server.stop
    expect([server.lines_of("one.log").size, server.lines_of("two.log").size]).to eq([1, 1])
  end

  it "goes to stdout as -" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1, AccessLog: "-" }).await_listening
    get(server, "/out")
    Eventually.eventually { server.log[%r{^127\.0\.0\.1 - - .* "GET /out HTTP/1\.1" 200 5 "-" "-"$}] }
  end

  it "is written whole when the server stops" do
    server = serve
    get(server, "/last")
    server.signal(:TERM)
    server.wait
    expect(server.lines_of("access.log").size).to eq(1)
  end

  it "does not wait for the reader of a FIFO, which finds the lines when it comes" do
    Dir.mktmpdir do |dir|
      File.mkfifo(path = File.join(dir, "fifo"))
      server = serve(AccessLog: path)
      get(server, "/early")
      File.open(path) { |reader| expect(reader.gets).to include("GET /early HTTP/1.1") }
      get(server, "/late")
      File.open(path) { |reader| expect(reader.gets).to include("GET /late HTTP/1.1") }
    end
  end

  it "loses its lines where there is no room, and says how many, and each counts once", linux: "/dev/full" do
    server = serve(AccessLog: "/dev/full", Pid: "app.pid")
    monitor = MonitorClient.new(File.join(server.dir, "app.control"))
    3.times { get(server, "/lost") }
    Eventually.eventually do
      get(server, "/next")
      server.log.match?(/^fastrack: the access log has not taken \d+ lines, which are dropped: no storage space/)
    end
    expect(monitor.metrics["fastrack_access_log_lines_dropped_total"]).to be >= 3
    expect(monitor.metrics["fastrack_access_log_lines_total"]).to eq(0)
  end

  it "drops lines rather than wait for a reader that hangs, counts them, and says so" do
    Dir.mktmpdir do |dir|
      File.mkfifo(path = File.join(dir, "fifo"))
      reader = File.open(path, "r+")
      server = serve(AccessLog: path, MaxRequestPerChild: 0)
      request = "GET /#{"a" * 1_700} HTTP/1.1\r\nHost: h\r\n\r\n"
      # Beyond the pipe's 64 KiB and what the worker keeps.
      text, = HttpPeer.exchange(server, "#{request * 999}#{request.sub("\r\n\r\n", "\r\nConnection: close\r\n\r\n")}")
      expect(text.scan("hello").size).to eq(1000)
      Eventually.eventually { server.log[/^fastrack: the access log has not taken \d+ lines, which are dropped: it is stuck \(worker \d+\)$/] }
      reader.close
    end
  end
end
