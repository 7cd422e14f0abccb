# frozen_string_literal: true

require "support/http_apps/pacing"

RSpec.describe "the proxy: bodies and streams", once: "the program knows no Ruby" do
  def server = @server

  before(:context) do
    @server = Edge.start(config: "max_workers 2\nmax_threads 3\ncompress true\n", ru: <<~RUBY)
      event = ->(number) { (sleep 0.005 until File.exist?("event-\#{number}")) || "data: event \#{number}\n\n" }
      events = -> { Enumerator.new { |parts| 3.times { |number| parts << event.call(number) } } }
      map("/events") { run ->(_env) { [200, { "content-type" => "text/event-stream" }, events.call] } }
      map("/gone") { run ->(env) { File.write("asked", ""); (sleep 0.01 until env["fastrack.client_gone"].call) || (File.write("gone", "") && [200, {}, []]) } }
      map("/") { #{HttpApps.ru(:proxied)} }
    RUBY
  end

  after { Dir.glob(server.file("event-*")) { |file| File.unlink(file) } }

  it "uploads come through whole, with a length and in chunks" do
    File.binwrite(file = server.file("upload"), body = Random.new(1).bytes(5_000_000))
    [["--http2"], ["--http1.1"], ["--http1.1", "-H", "Transfer-Encoding: chunked"], ["--http1.1", "-H", "Expect: 100-continue"]].each do |options|
      text, status = Edge.curl(server, *options, "-T", file, path: "/echo")
      expect([status.success?, Marshal.load(text)["body"] == body]).to eq([true, true]) # rubocop:disable Security/MarshalLoad
    end
  end

  it "responses of any size come through" do
    %w[--http2 --http1.1].each do |option|
      expect(Edge.curl(server, option, path: "/body/each-large").first).to eq("z" * 5_000_000)
      expect(Edge.curl(server, option, path: "/large").first.bytesize).to eq(HttpApps::Pacing::LARGE)
      [204, 304, 404, 503].each { |code| expect(Edge.curl(server, option, "-o", File::NULL, "-w", "%{http_code}", path: "/status/#{code}").first).to eq(code.to_s) }
      expect(Edge.curl(server, option, "-I", path: "/body/array")).to match([%r{\AHTTP/\S+ 200}, be_success])
    end
  end

  it "a large upload takes no memory of the proxy's" do
    File.open(server.file("large"), "w") { |file| file.truncate(200_000_000) }
    proxy = Edge.proxy(server)
    expect(Edge.curl(server, "-T", server.file("large"), "-o", File::NULL, path: "/status/200").last).to be_success
    expect(File.read("/proc/#{proxy}/status")[/^VmHWM:\s+(\d+)/, 1].to_i).to be < 40 * 1024
  end

  %w[identity zstd br gzip].each do |coding|
    it "events arrive one by one, as #{coding}" do
      expected = Edge.curl(server, "-V").first
      skip "curl has no #{coding}" if coding != "identity" && !expected.include?({ "br" => "brotli", "gzip" => "libz" }.fetch(coding, coding))
      options = coding == "identity" ? [] : ["--compressed", "-H", "Accept-Encoding: #{coding}"]
      url = "https://localhost:#{server.port}/events"
      IO.popen(["curl", "-sSkN", *options, url]) do |events|
        3.times { |number| server.write("event-#{number}", "") && expect([events.gets, events.gets]).to(eq(["data: event #{number}\n", "\n"])) }
      end
    end
  end

  it "a client that leaves is gone for the app, too" do
    tls = Edge.connect(server)
    tls.write("GET /gone HTTP/1.1\r\nHost: localhost\r\n\r\n")
    server.await_file("asked")
    tls.close
    server.await_file("gone")
  end

  it "a client that leaves without TLS is gone for the app, too" do
    app = 'run ->(env) { File.write("asked", ""); (sleep 0.01 until env["fastrack.client_gone"].call) || (File.write("gone", "") && [200, {}, []]) }'
    plain = Server.start(ru: app, options: { MaxWorkers: 1, Compress: true })
    plain.connect do |socket|
      socket.write(message("GET / HTTP/1.1", "Host: a"))
      plain.await_file("asked")
    end
    plain.await_file("gone")
  end

  it "a connection changes its protocol (101)" do
    tls = Edge.connect(server)
    tls.write(message("GET /hijacking/partial/switch HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: echo"))
    expect(tls.gets("\r\n\r\n")).to match(%r{\AHTTP/1\.1 101 .*^upgrade: echo\r$}im)
    tls.write("hello")
    expect(tls.read).to eq("HELLO")
  end

  it "pipelined requests are answered in order" do
    tls = Edge.connect(server)
    tls.write(message("GET /status/200 HTTP/1.1", "Host: a") + message("GET /status/404 HTTP/1.1", "Host: a", "Connection: close"))
    expect(HttpResponse.all(tls.read).map(&:status)).to eq([200, 404])
  end

  it "a request that a worker would refuse is refused" do
    ["GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
     "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "GET / HTTP/3.0\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
     "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"].each do |bytes|
      tls = Edge.connect(server)
      tls.write(bytes.sub("\r\n\r\n", "\r\nConnection: close\r\n\r\n"))
      expect(tls.gets).to match(%r{\AHTTP/1\.1 (?:400|501|505) }), bytes
      tls.close
    end
  end
end
