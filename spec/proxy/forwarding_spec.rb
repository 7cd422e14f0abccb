# frozen_string_literal: true

require "support/http2_frames"
require "support/lone_proxy"

RSpec.describe "the proxy: what passes besides head and body", once: "the program knows no Ruby" do
  def server = @server

  around { |example| Dir.mktmpdir { |dir| (@dir = dir) && example.run } }

  # @return [String] what has come when it fits
  def read_until(io, pattern)
    text = +""
    until text.match?(pattern)
      raise "nothing came after #{text.inspect}" unless io.wait_readable(GcMode.patient(20))

      text << io.readpartial(4096)
    end
    text
  end

  def nghttp(*arguments) = Open3.capture2e("nghttp", "-v", "--timeout=20", *arguments).first.gsub(/\e\[[\d;]*m/, "")

  it "protocols that the app offers with 426 reach the client, and the connection goes on" do
    ru = "run ->(env) { env['PATH_INFO'] == '/' ? [426, { 'upgrade' => 'websocket' }, ['no']] : [200, {}, ['ok']] }"
    @server = Edge.start(ru: ru)
    tls = Edge.connect(server)
    head, = Edge.ask(tls)
    expect([head[/ (\d+)/, 1], head.scan(/^(?:connection|upgrade): .*$/i).map { |line| line.chomp.downcase }.sort]).to eq(["426", ["connection: upgrade", "upgrade: websocket"]])
    text, = Edge.curl(server, "--http2", "-i", path: "/")
    expect([text[/\AHTTP\/2 426/].nil?, text[/^upgrade:/i]]).to eq([false, nil])
  end

  describe "trailers" do
    before(:context) { skip "no nghttp" unless ENV.fetch("PATH").split(":").any? { |dir| File.executable?(File.join(dir, "nghttp")) } }

    # A worker's response whose body has a sum behind it.
    def answer(io, type = "image/png")
      io.write(message("HTTP/1.1 200 OK", "Content-Type: #{type}", "Trailer: X-Sum", "Transfer-Encoding: chunked"), "5\r\nhello\r\n", "0\r\nX-Sum: abc\r\n\r\n")
    end

    it "of a response reach clients that take them: by HTTP/2, and by HTTP/1.1 with TE" do
      LoneProxy.open(@dir) do |proxy|
        asking = Thread.new { nghttp("http://127.0.0.1:#{proxy.port}/") }
        worker = proxy.worker.tap { |io| read_until(io, /\r\n\r\n/) && answer(io) }
        expect(asking.value).to match(/hello.*recv \(stream_id=\d+\) x-sum: abc$/m)
        { "TE: trailers\r\nConnection: TE\r\n" => "0\r\nx-sum: abc\r\n\r\n", "" => "0\r\n\r\n" }.each do |field, ending|
          client = proxy.connect
          client.write("GET / HTTP/1.1\r\nHost: a\r\n#{field}\r\n")
          read_until(worker, /\r\n\r\n/)
          answer(worker)
          expect(read_until(client, /0\r\n(?:x-sum.*\r\n)?\r\n/)).to end_with(ending)
          client.close
        end
      end
    end

    it "of a response reach them behind a compressed body, too" do
      LoneProxy.open(@dir, compress: true) do |proxy|
        asking = Thread.new { nghttp("-H", "accept-encoding: gzip", "http://127.0.0.1:#{proxy.port}/") }
        proxy.worker.tap { |io| read_until(io, /\r\n\r\n/) && answer(io, "text/plain") }
        expect(asking.value).to match(/content-encoding: gzip$.*recv \(stream_id=\d+\) x-sum: abc$/m)
      end
    end

    it "of a request reach the worker where Trailer names them: by HTTP/1.1 and HTTP/2" do
      File.write(body = File.join(@dir, "body"), "hello")
      LoneProxy.open(@dir) do |proxy|
        client = proxy.connect
        client.write(message("POST / HTTP/1.1", "Host: a", "Trailer: X-Sum", "Transfer-Encoding: chunked"), "5\r\nhello\r\n", "0\r\nX-Sum: abc\r\n\r\n")
        worker = proxy.worker
        expect(read_until(worker, /x-sum: abc\r\n\r\n/i)).to match(/\r\n5\r\nhello\r\n0\r\nx-sum: abc\r\n\r\n\z/)
        answer(worker)
        asking = Thread.new { nghttp("--no-content-length", "-H", "trailer: x-sum", "--trailer", "x-sum: abc", "-d", body, "http://127.0.0.1:#{proxy.port}/") }
        expect(read_until(worker, /x-sum: abc\r\n\r\n/i)).to match(/^transfer-encoding: chunked\r\n.*\r\n5\r\nhello\r\n0\r\nx-sum: abc\r\n\r\n\z/m)
        answer(worker)
        asking.value
      end
    end
  end

  it "a GET whose worker dies is asked anew by a new connection: kept ones may be the dead worker's, too" do
    LoneProxy.open(@dir, threads: 1) do |proxy|
      ask = -> { proxy.connect.tap { |client| client.write(message("GET / HTTP/1.1", "Host: a")) } }
      answer = ->(worker) { worker.write(message("HTTP/1.1 200 OK", "Content-Length: 5"), "hello") }
      clients, workers = Array.new(2) { [ask.call, proxy.worker] }.transpose
      workers.each { |worker| read_until(worker, /\r\n\r\n/) && answer.call(worker) }
      clients.each { |client| read_until(client, /hello\z/) }
      client = ask.call
      IO.select(workers, nil, nil, GcMode.patient(20)).first.first.close
      answer.call(proxy.worker.tap { |worker| read_until(worker, /\r\n\r\n/) })
      expect(read_until(client, /\r\n\r\n/)).to start_with("HTTP/1.1 200")
    end
  end

  # The proxy's lines for its master, up to one that fits.
  def said(proxy, pattern)
    lines = []
    lines << proxy.said.gets.to_s until lines.last&.match?(pattern)
    lines
  end

  it "a client that leaves in its upload is no worker that died: no warning, and no 502 in the monitor" do
    LoneProxy.open(@dir) do |proxy|
      ["Content-Length: 100", "Transfer-Encoding: chunked"].each do |field|
        client = proxy.connect
        client.write(message("POST / HTTP/1.1", "Host: a", field), "5\r\nhello\r\n")
        worker = proxy.worker
        read_until(worker, /hello/)
        client.close
        expect(worker.read).not_to match(/0\r\n\r\n\z/)
      end
      # Both requests have ended.
      lines = said(proxy, /\Astats (?=.*"open":0\b).*"requests":2\b/)
      expect(lines.grep(/\Awarn/)).to be_empty
      expect(lines.last).to match(/"bad_gateway":0\b/)
    end
  end

  it "a part that comes together with a failure of the worker's response reaches the client, whose connection is reset then" do
    LoneProxy.open(@dir) do |proxy|
      10.times do
        client, worker = proxy.ask
        worker.write("#{message("HTTP/1.1 200 OK", "Transfer-Encoding: chunked")}4\r\npart\r\nbroken\r\n")
        expect(read_until(client, /part\r\n/)).to start_with("HTTP/1.1 200 OK")
        expect { client.read }.to raise_error(Errno::ECONNRESET)
        client.close
      end
    end
  end

  it "a response in a coding of the connection that its client would not learn of is a 502" do
    LoneProxy.open(@dir) do |proxy|
      client, worker = proxy.ask
      worker.write("#{message("HTTP/1.1 200 OK", "Transfer-Encoding: gzip, chunked")}0\r\n\r\n")
      expect(read_until(client, /\r\n\r\n/)).to start_with("HTTP/1.1 502")
      expect(proxy.await_line("warn")).to include("Transfer-Encoding")
    end
  end

  describe "a change of protocols by HTTP/2 (RFC 8441)" do
    before(:context) { @server = Edge.start(ru: HttpApps.ru(:proxied)) }

    def connection = HTTP2Frames.new(Edge.connect(server, alpn: %w[h2]))

    def ask(http2, path, *fields)
      http2.headers(1, [%w[:method CONNECT], *fields, %w[:scheme https], [":path", path], %w[:authority localhost], %w[sec-websocket-version 13]])
      http2.read(HTTP2Frames::HEADERS, HTTP2Frames::RST_STREAM)
    end

    it "is offered, and becomes the worker's Upgrade: bytes pass both ways" do
      http2 = connection
      expect(http2.settings).to include(HTTP2Frames::ENABLE_CONNECT_PROTOCOL => 1)
      answer = ask(http2, "/hijacking/partial/switch", %w[:protocol echo])
      expect([answer.type, answer.payload.getbyte(0), answer.flags & HTTP2Frames::END_STREAM]).to eq([HTTP2Frames::HEADERS, HTTP2Frames::STATUS_200, 0])
      http2.data(1, "hello")
      expect(http2.read(HTTP2Frames::DATA).payload).to eq("HELLO")
    end

    it "is told as it is where the app does not change it" do
      answer = ask(connection, "/status/404", %w[:protocol websocket])
      # `:status: 404` is number 13 of RFC 7541's table.
      expect([answer.type, answer.payload.getbyte(0)]).to eq([HTTP2Frames::HEADERS, 0x8d])
    end

    %w[/status/200 /status/204 /body/array].each do |path|
      it "is no open tunnel where the app answers it by a success: #{path}" do
        http2 = connection
        answer = ask(http2, path, %w[:protocol websocket])
        # A literal of `:status`, which is 8 in that table.
        expect([answer.type, answer.payload]).to match([HTTP2Frames::HEADERS, /\A\x48\x03502|\A\x48\x82\x6c\x02/n])
      end
    end
  end

  it "early hints of the app do not pass, and its response does" do
    @server = Edge.start(ru: HttpApps.ru(:hinting), config: "early_hints true\n")
    %w[--http2 --http1.1].each do |option|
      text, status = Edge.curl(server, option, "-i", path: "/lines")
      expect([status.success?, text]).to match([true, /\AHTTP\/\S+ 200 .*\r\n\r\none\z/m])
    end
  end
end
