# frozen_string_literal: true

RSpec.describe "the proxy: a request's content", once: "the program knows no Ruby" do
  def server = @server

  context "beside Upgrade" do
    before(:context) { @server = Edge.start }

    framings = { "Content-Length" => ["Content-Length: 3", "abc"], "chunks" => ["Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"] }
    upgrades = { "h2c" => ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"],
                 "TLS/1.2" => ["Connection: Upgrade", "Upgrade: TLS/1.2"], "websocket" => ["Connection: Upgrade", "Upgrade: websocket"] }
    framings.to_a.product(upgrades.to_a).each do |(framing, (field, bytes)), (protocol, fields)|
      it "reaches the app: Upgrade: #{protocol}, by #{framing}" do
        tls = Edge.connect(server)
        tls.write(message("POST / HTTP/1.1", "Host: localhost", *fields, field), bytes)
        head = tls.gets("\r\n\r\n").to_s
        echo = HttpApps::Echo.read(HttpResponse.parse(head + tls.read(head[/^content-length: (\d+)/i, 1].to_i)))
        expect(echo).to include("body" => "abc", "env" => hash_excluding("HTTP_UPGRADE"))
      ensure
        tls&.close
      end
    end

    it "reaches the app from curl --http2 without TLS, which asks for h2c" do
      @server = Server.ready(ru: HttpApps.ru(:echo), fastrack: true, config: "max_workers 1\ncompress true\nhost '127.0.0.1'\nport 0", options: { "Host" => nil, "Port" => nil })
      text, status = Edge.curl(server, "--http2", "-d", "abc", scheme: "http")
      expect([status.success?, Marshal.load(text)["body"]]).to eq([true, "abc"]) # rubocop:disable Security/MarshalLoad -- written by HttpApps::Echo
    end
  end

  context "of unknown length" do
    before(:context) { @server = Edge.start }

    it "reaches the app with GET: by HTTP/1.1 in chunks, and by HTTP/2" do
      tls = Edge.connect(server)
      tls.write(message("GET / HTTP/1.1", "Host: localhost", "Connection: close", "Transfer-Encoding: chunked"), "3\r\nabc\r\n0\r\n\r\n")
      expect(HttpApps::Echo.read(HttpResponse.parse(tls.read))["body"]).to eq("abc")
      File.write(body = server.file("content"), "abc")
      text, = Edge.curl(server, "--http2", "-X", "GET", "-H", "Content-Length:", "-T", body)
      expect(Marshal.load(text)).to include("body" => "abc") # rubocop:disable Security/MarshalLoad -- written by HttpApps::Echo
    end
  end
end
