# frozen_string_literal: true

require "support/lone_proxy"

# Requests and responses that pass without the proxy pass through it, too.
RSpec.describe "the proxy: no stricter than a worker", once: "the program knows no Ruby" do
  def server = @server

  def start(ru = HttpApps.ru(:echo), config = "")
    config = "max_workers 1\ncompress true\nhost '127.0.0.1'\nport 0\n#{config}"
    @server = Server.ready(ru: ru, fastrack: true, config: config, options: { "Host" => nil, "Port" => nil })
  end

  context "with a client that has ended its own side" do
    before(:context) { start }

    message = ->(*lines) { "#{lines.join("\r\n")}\r\n\r\n" }
    {
      "a GET" => [message.call("GET / HTTP/1.1", "Host: a"), [""]],
      "a body with a length" => [message.call("POST / HTTP/1.1", "Host: a", "Content-Length: 3") + "abc", ["abc"]],
      "a body in chunks" => [message.call("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "3\r\nabc\r\n0\r\n\r\n", ["abc"]],
      "several requests" => [(message.call("POST / HTTP/1.1", "Host: a", "Content-Length: 1") + "x") * 3, ["x"] * 3]
    }.each do |what, (bytes, bodies)|
      it "#{what} gets its whole response" do
        wire, ending = HttpPeer.exchange(server, bytes, half_close: true)
        expect([HttpResponse.all(wire).map { |response| HttpApps::Echo.read(response)["body"] }, ending]).to eq([bodies, :closed])
      end
    end

    it "a request that is not whole gets no 502" do
      wire, ending = HttpPeer.exchange(server, message("POST / HTTP/1.1", "Host: a", "Content-Length: 3") + "a", half_close: true)
      expect(HttpResponse.all(wire).map(&:status) - [400]).to eq([])
      expect(ending).to eq(:closed)
    end
  end

  it "110 cookies of HTTP/2 are one field for the app (RFC 9113 8.2.3)" do
    @server = Edge.start
    cookies = Array.new(150) { |number| "c#{number}=#{number}" }
    env = Edge.env(server, "--http2", *cookies.flat_map { |cookie| ["-H", "Cookie: #{cookie}"] })
    expect(env["HTTP_COOKIE"]).to eq(cookies.join("; "))
  end

  it "a control byte in a field of the app's is a 500, and the log names the field, with the proxy and without it" do
    app = 'run ->(_env) { [200, { "x-broken" => "a\\x01b" }, ["ok"]] }'
    start(app)
    expect(server.get("/").status).to eq(500)
    server.await_log(/x-broken.*control byte/)
    serve(app)
    expect(server.get("/").status).to eq(500)
    server.await_log(/x-broken.*control byte/)
  end

  %w[1.0 1.1].each do |protocol|
    it "half a response of a worker is none by HTTP/#{protocol}" do
      Dir.mktmpdir do |dir|
        LoneProxy.open(dir, h2c: false) do |proxy|
          client = proxy.connect.tap { |io| io.write(message("GET / HTTP/#{protocol}", "Host: a")) }
          worker = proxy.worker.tap { |io| io.gets("\r\n\r\n") }
          worker.write(message("HTTP/1.1 200 OK", "Transfer-Encoding: chunked"), "4\r\npart\r\n")
          expect(client.gets("part")).to end_with("part")
          worker.close
          expect { client.read }.to raise_error(Errno::ECONNRESET)
        ensure
          client&.close
        end
      end
    end
  end
end
