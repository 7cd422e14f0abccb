# frozen_string_literal: true

require "ipaddr"

RSpec.describe "the proxy: what an app learns of the client", once: "the program knows no Ruby" do
  def server = @server

  context "with TLS" do
    before(:context) { @server = Edge.start(config: "access_log 'access.log'\n") }

    it "env is that of a client of the worker" do
      { "--http2" => "HTTP/2", "--http1.1" => "HTTP/1.1", "--http1.0" => "HTTP/1.0" }.each do |option, protocol|
        env = Edge.env(server, option, path: "/a%20b?c=d")
        expect(env).to include("REMOTE_ADDR" => "127.0.0.1", "REMOTE_PORT" => /\A[1-9]\d+\z/, "SERVER_NAME" => "localhost", "SERVER_PORT" => server.port.to_s,
                               "SERVER_PROTOCOL" => protocol, "rack.url_scheme" => "https", "PATH_INFO" => "/a%20b", "QUERY_STRING" => "c=d",
                               "HTTP_HOST" => "localhost:#{server.port}", "HTTP_X_REQUEST_START" => /\At=\d{16}\z/)
        expect(env.keys.grep(/FASTRACK|FORWARDED|CONNECTION/)).to be_empty
      end
    end

    it "a Host without a port has https's" do
      expect(Edge.env(server, "-H", "Host: example.org")).to include("SERVER_NAME" => "example.org", "SERVER_PORT" => "443")
      expect(Edge.env(server, "--http1.0", "-H", "Host:")).to include("SERVER_NAME" => "127.0.0.1", "SERVER_PORT" => server.port.to_s)
    end

    it "a client can forge none of it" do
      fields = ["Fastrack-Client: 6.6.6.6 1 http HTTP/1.0", "Fastrack_Client: 6.6.6.6 1 http HTTP/1.0", "X-Forwarded-For: 6.6.6.6", "X_Forwarded_For: 6.6.6.6",
                "X-Forwarded-Proto: http", "X-Forwarded-Host: evil", "Forwarded: for=6.6.6.6", "X-Real-IP: 6.6.6.6", "X-Request-Start: t=1500000000",
                "X-Queue-Start: t=1500000000", "X-Sendfile-Type: X-Sendfile", "X-Accel-Mapping: /=/"]
      %w[--http2 --http1.1].each do |option|
        env = Edge.env(server, option, *fields.flat_map { |field| ["-H", field] })
        expect(env).to include("REMOTE_ADDR" => "127.0.0.1", "rack.url_scheme" => "https", "HTTP_X_REQUEST_START" => /\At=\d{16}\z/)
        expect(env.select { |_, value| value.to_s.match?(/6\.6\.6\.6|evil|1500000000/) }).to be_empty
        expect(env.keys.grep(/FASTRACK/)).to be_empty
      end
    end

    it "the access log has the client's address and protocol" do
      Edge.curl(server, "--http2", path: "/logged")
      eventually { server.lines_of("access.log").grep(/logged/).any? }
      expect(server.lines_of("access.log").grep(/logged/).first).to match(%r{\A127\.0\.0\.1 - - \[.*\] "GET /logged HTTP/2" 200 })
    end

    it "the workers' socket is for the proxy's user only" do
      path = File.read("/proc/net/unix")[%r{\S+/#{server.master}\.proxy$}]
      expect([File.stat(path).mode & 0o777, File.stat(File.dirname(path)).mode & 0o777]).to eq([0o600, 0o700])
    end
  end

  it "the PROXY protocol names the client, in both of its versions" do
    @server = Edge.start(parameters: "&proxy_protocol=true")
    expect(Edge.curl(server).last).not_to be_success
    expect(Edge.env(server, "--haproxy-protocol", "--haproxy-clientip", "203.0.113.9")).to include("REMOTE_ADDR" => "203.0.113.9") if Edge.curl(server, "--help", "all").first.include?("clientip")
    second = ->(command, family, bytes) { "\r\n\r\n\0\r\nQUIT\n".b + [command, family, bytes.bytesize].pack("CCn") + bytes }
    {
      "PROXY TCP4 203.0.113.9 192.0.2.1 51234 443\r\n" => ["203.0.113.9", "51234"],
      second.call(0x21, 0x11, [203, 0, 113, 9, 192, 0, 2, 1, 51_234, 443].pack("C8nn")) => ["203.0.113.9", "51234"],
      second.call(0x21, 0x21, [IPAddr.new("2001:db8::9").hton, IPAddr.new("::1").hton, 51_234, 443].pack("a16a16nn")) => ["2001:db8::9", "51234"],
      second.call(0x20, 0, "") => ["127.0.0.1", /\A\d+\z/]
    }.each do |head, (address, number)|
      tls = OpenSSL::SSL::SSLSocket.new(server.connect.tap { |socket| socket.write(head) }).tap(&:connect)
      tls.write("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
      expect(HttpApps::Echo.read(HttpResponse.parse(tls.read))["env"]).to include("REMOTE_ADDR" => address, "REMOTE_PORT" => number)
    end
    tls = OpenSSL::SSL::SSLSocket.new(server.connect.tap { |socket| socket.write("PROXY TCP4 203.0.113.9 192.0.2.1 1 2\r\n") }).tap(&:connect)
    request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    tls.write("#{request}PROXY TCP4 198.51.100.7 192.0.2.1 1 2\r\n#{request}")
    expect(tls.read.scan(%r{HTTP/1\.1 (\d+)}).flatten).to eq(%w[200 400])
  end

  it "a port without TLS redirects with force_ssl, and keeps path and query" do
    FreePort.keep(2) do |port|
      config = "bind 'ssl://127.0.0.1:#{port}?cert=a.pem&key=a.key'\nlisten '127.0.0.1:#{port + 1}'\nforce_ssl true\nmax_workers 1\n"
      @server = Server.ready(ru: HttpApps.ru(:echo), fastrack: true, config: config, files: Edge.files, options: { "Host" => nil, "Port" => nil })
      { "GET" => "301", "POST" => "307" }.each do |verb, code|
        text, = Open3.capture2e("curl", "-sS", "-X", verb, "-o", File::NULL, "-w", "%{http_code} %{redirect_url}", "http://127.0.0.1:#{port + 1}/a?b=c")
        expect(text).to eq("#{code} https://127.0.0.1:#{port}/a?b=c")
      end
    end
  end

  it "paths that are excepted from force_ssl are answered without TLS: health checks follow no redirect" do
    FreePort.keep(2) do |port|
      config = "bind 'ssl://127.0.0.1:#{port}?cert=a.pem&key=a.key'\nlisten '127.0.0.1:#{port + 1}'\nforce_ssl true\nforce_ssl_except '/up', '/health/*'\nmax_workers 1\n"
      @server = Server.ready(ru: HttpApps.ru(:echo), fastrack: true, config: config, files: Edge.files, options: { "Host" => nil, "Port" => nil })
      found = %w[/up /up?a=b /health/db /up/other /].to_h do |path|
        [path, Open3.capture2e("curl", "-sS", "-o", File::NULL, "-w", "%{http_code}", "http://127.0.0.1:#{port + 1}#{path}").first]
      end
      expect(found).to eq("/up" => "200", "/up?a=b" => "200", "/health/db" => "200", "/up/other" => "301", "/" => "301")
    end
  end
end
