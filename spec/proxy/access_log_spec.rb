# frozen_string_literal: true

require "json"
require "support/lone_proxy"

RSpec.describe "the proxy: the access log's lines of its own answers", once: "the program knows no Ruby" do
  def server = @server
  def lines = server.lines_of("access.log")

  app = <<~RUBY
    run ->(env) { env["PATH_INFO"] == "/die" ? Process.kill(:KILL, Process.pid) : [200, { "content-type" => "text/plain" }, ["app"]] }
  RUBY

  define_method(:start) do |config = "", **keywords|
    config = "access_log 'access.log'\npublic_files 'public'\nerr_respawn_interval 0\n#{config}"
    @server = Edge.start(ru: app, config: config, files: { "public/a.txt" => "0123456789", "public/large" => "l" * 300_000 }, **keywords)
  end

  def line(matching) = eventually(Server::DEADLINE, -> { lines.join("\n") }) { lines.grep(matching).first }

  it "are as a worker's, and each request has one" do
    start
    tag = Edge.curl(server, "-i", "-A", "a \"b\"", "-H", "Referer: http://c/", path: "/a.txt?d=e").first[/^etag: (.*)\r/i, 1]
    expect(line(/a\.txt/)).to match(%r{\A127\.0\.0\.1 - - \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d \+0000\] "GET /a\.txt\?d=e HTTP/2" 200 10 "http://c/" "a \\x22b\\x22"\z})
    Edge.curl(server, "--http1.1", "-H", "If-None-Match: #{tag}", path: "/a.txt?unchanged")
    expect(line(/unchanged/)).to match(%r{"GET /a\.txt\?unchanged HTTP/1\.1" 304 0 "-"})
    Edge.curl(server, "-I", path: "/a.txt?head")
    expect(line(/head/)).to match(%r{"HEAD /a\.txt\?head HTTP/2" 200 0 "-"})
    Edge.curl(server, path: "/large")
    expect(line(/large/)).to match(%r{"GET /large HTTP/2" 200 300000 "-"})
    Edge.curl(server, "-d", "a=b", path: "/die")
    expect(line(/die/)).to match(%r{"POST /die HTTP/2" 502 12 "-"})
    Edge.curl(server, path: "/app")
    line(%r{/app})
    Edge.connect(server).tap { |tls| tls.write("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n") && tls.read }.close
    expect(line(/"-" 4/)).to match(/\A127\.0\.0\.1 - - \[.*\] "-" 400 39 "-" "-"\z/)
    expect(lines.size).to eq(7)
  end

  it "say in JSON that no worker has answered" do
    start("access_log_format 'json'\n")
    Edge.curl(server, "-H", "X-Request-Id: r-1", path: "/a.txt")
    expect(JSON.parse(line(/a\.txt/))).to include("worker" => nil, "pid" => Edge.proxy(server), "status" => 200, "bytes" => 10, "remote_addr" => "127.0.0.1", "method" => "GET",
                                                  "target" => "/a.txt", "request_id" => "r-1", "duration" => be_between(0, 30))
  end

  it "go to the new file after a rotation (USR1), and to stdout where the log is there" do
    start
    Edge.curl(server, path: "/a.txt?first")
    line(/first/)
    File.rename(server.file("access.log"), server.file("access.log.1"))
    server.signal(:USR1)
    eventually { Edge.curl(server, path: "/a.txt?second") && File.exist?(server.file("access.log")) && lines.grep(/second/).any? }
    expect(server.lines_of("access.log.1").size).to be_between(1, 100)
    @server = Edge.start(ru: app, config: "access_log '-'\npublic_files 'public'\n", files: { "public/a.txt" => "a" })
    Edge.curl(server, path: "/a.txt")
    server.await_log(%r{"GET /a\.txt HTTP/2" 200 1 "-" "curl/})
  end

  it "are those of redirects, too" do
    FreePort.keep(2) do |port|
      @server = Server.ready(ru: app, fastrack: true, files: Edge.files, options: { "Host" => nil, "Port" => nil },
                             config: "bind 'ssl://127.0.0.1:#{port}?cert=a.pem&key=a.key'\nlisten '127.0.0.1:#{port + 1}'\nforce_ssl true\nmax_workers 1\naccess_log 'access.log'\n")
      Open3.capture2e("curl", "-sS", "http://127.0.0.1:#{port + 1}/here")
      expect(line(/here/)).to match(%r{"GET /here HTTP/1\.1" 301 18 "-" "curl/})
    end
  end

  it "keep no heads in memory while nobody reads the log" do
    Dir.mktmpdir do |dir|
      Folder.write(dir, "public/a.txt", "a")
      unread, log = IO.pipe
      log.write_nonblock("a" * 1024) until log.wait_writable(0).nil?
      LoneProxy.open(dir, public_files: "#{dir}/public", log: log) do |proxy|
        client = proxy.connect
        1500.times { Edge.ask(client, "/a.txt", "User-Agent: a", "X-Long: #{"l" * 60_000}") }
        expect(File.read("/proc/#{proxy.pid}/status")[/^VmRSS:\s+(\d+)/, 1].to_i).to be < 50_000
      end
      [unread, log].each(&:close)
    end
  end
end
