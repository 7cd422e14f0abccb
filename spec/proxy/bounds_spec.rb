# frozen_string_literal: true

require "support/http2_frames"
require "support/lone_proxy"

RSpec.describe "the proxy: bounds", once: "the program knows no Ruby" do
  def server = @server

  before(:context) { @server = Edge.start(config: "header_timeout 4\nkeep_alive_timeout 4\nmax_header_size '8K'\n") }

  def closed_after(io)
    began = Eventually.now
    io.read
    Eventually.now - began
  rescue SystemCallError, OpenSSL::SSL::SSLError
    Eventually.now - began
  end

  it "a client that never begins its handshake, or never ends its head, is closed" do
    silent = server.connect
    half = Edge.connect(server).tap { |tls| tls.write("GET / HTTP/1.1\r\nHost: a\r\n") }
    idle = Edge.connect(server, alpn: %w[h2])
    [silent, half, idle].each { |io| expect(closed_after(io)).to be < GcMode.patient(20) }
  end

  it "an idle connection is closed after KeepAliveTimeout, and not while it is used" do
    tls = Edge.connect(server)
    began = nil
    # Longer than KeepAliveTimeout in all.
    10.times { (began = Eventually.now) && Edge.ask(tls) && sleep(0.5) }
    closed_after(tls)
    expect(Eventually.now - began).to be_between(3.5, GcMode.patient(20))
  end

  describe "an HTTP/2 connection without a request" do
    around do |example|
      Dir.mktmpdir do |dir|
        Folder.write(dir, "public/a.txt", "a")
        (@dir = dir) && example.run
      end
    end

    # A connection that was used, to a proxy with these times.
    def used(**times)
      LoneProxy.open(@dir, public_files: "#{@dir}/public", **times) do |proxy|
        http2 = HTTP2Frames.new(client = proxy.connect)
        expect(status(http2, 1)).to eq(HTTP2Frames::STATUS_200)
        yield http2
      ensure
        client&.close
      end
    end

    # The first byte of the fields of a response.
    def status(http2, stream)
      http2.headers(stream, { ":method" => "GET", ":scheme" => "http", ":authority" => "a", ":path" => "/a.txt" }, flags: HTTP2Frames::END_HEADERS | HTTP2Frames::END_STREAM)
      http2.read(HTTP2Frames::HEADERS).payload.getbyte(0)
    end

    it "stays for KeepAliveTimeout, though frames come that may take longer than HeaderTimeout" do
      used(header_timeout: 2, keep_alive_timeout: 3600) do |http2|
        since = Eventually.now
        http2.idle && sleep(0.1) while Eventually.now < since + 3.5
        expect(status(http2, 3)).to eq(HTTP2Frames::STATUS_200)
      end
    end

    it "is closed after KeepAliveTimeout, though frames come all the time" do
      used(header_timeout: 3600, keep_alive_timeout: 1) do |http2|
        eventually do
          http2.idle.nil?
        rescue EOFError, SystemCallError
          true
        end
      end
    end
  end

  it "fields beyond MaxHeaderSize are refused" do
    %w[--http1.1 --http2].each do |option|
      text, = Edge.curl(server, option, "-o", File::NULL, "-w", "%{http_code}", "-H", "X-Large: #{"a" * 20_000}")
      expect(text).to match(/431|000|400/)
    end
    expect(Edge.curl(server).last).to be_success
  end

  def resident(pid) = File.read("/proc/#{pid}/status")[/^VmRSS:\s+(\d+)/, 1].to_i

  it "an idle client takes less than 18 KB", alone: "memory of a process" do
    idle = Edge.start(config: "max_workers 1\n")
    proxy = Edge.proxy(idle)
    empty = resident(proxy)
    clients = []
    # hyper's buffers are free when a client is quiet, and the next ones get them.
    eventually(60, -> { "#{(resident(proxy) - empty) / clients.size} KB" }) do
      clients.concat(Array.new(100) { Edge.connect(idle).tap { |tls| Edge.ask(tls) } })
      clients.size >= 600 && resident(proxy) - empty < 18 * clients.size
    end
    # They are served as before, and what has come of a head counts.
    clients.each { |tls| tls.write("GET / HTTP/1.1\r\n") }
    expect(clients.map { |tls| Edge.ask_rest(tls) }.uniq).to eq([200])
  end

  it "what comes of a body after its response is no request" do
    early = Edge.start(config: "stream_body true\n", ru: 'run ->(env) { File.write("seen", env["PATH_INFO"], mode: "a") && [200, { "content-length" => "2" }, ["ok"]] }')
    tls = Edge.connect(early)
    Edge.ask(tls, "/a", "Content-Length: 1000", verb: "POST")
    # Longer than it takes until a client is quiet.
    sleep 2.5
    begin
      tls.write("GET /b HTTP/1.1\r\nHost: localhost\r\n\r\n")
      tls.read
    rescue SystemCallError, OpenSSL::SSL::SSLError
      nil
    end
    expect(File.read(early.file("seen"))).to eq("/a")
  end

  it "handshakes beyond max_ssl_rate wait" do
    limited = Edge.start(config: "max_ssl_rate 10\n")
    began = Eventually.now
    # A second's are there at once, and one is held by each of the proxy's threads, which are four at most.
    30.times { Edge.connect(limited).close }
    expect(Eventually.now - began).to be > (30 - 10 - 4) / 10.0
  end

  def sockets(pid) = Dir.children("/proc/#{pid}/fd").count { |number| descriptor(pid, number).start_with?("socket:") }

  def descriptor(pid, number)
    File.readlink("/proc/#{pid}/fd/#{number}")
  rescue Errno::ENOENT
    ""
  end

  # A frame of HTTP/2 (RFC 9113 §4.1).
  def frame(type, flags, stream, payload) = [payload.bytesize].pack("N")[1..] + [type, flags, stream].pack("CCN") + payload

  # A request whose client has no room for the body.
  def ask_without_window(tls, path)
    fields = "\x82\x87\x04#{path.bytesize.chr}#{path}\x01\x09localhost".b
    tls.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".b + frame(4, 0, 0, [4, 0].pack("nN")) + frame(1, 5, 1, fields))
    loop do
      length, type = tls.read(9).unpack("xnC")
      tls.read(length)
      return if type == 1
    end
  end

  it "a client that takes nothing of a response is closed after WriteTimeout" do
    slow = Edge.start(config: "write_timeout 1\nkeep_alive_timeout 1\npublic_files 'public'\n", files: { "public/large" => "a" * 30_000_000 })
    proxy = Edge.proxy(slow)
    before = sockets(proxy)
    clients = [Edge.connect(slow), Edge.connect(slow, alpn: %w[h2])]
    clients.first.write("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
    expect(clients.first.gets("\r\n\r\n")).to start_with("HTTP/1.1 200")
    ask_without_window(clients.last, "/large")
    eventually(60, -> { "#{sockets(proxy) - before} sockets more" }) { sockets(proxy) == before }
  end

  it "other clients are served while many connect and send nothing" do
    many = Array.new(200) { server.connect }
    expect(Edge.curl(server).last).to be_success
    many.each(&:close)
  end
end
