# frozen_string_literal: true

require "support/http_rules"

# The rules of crates/http/src/rules.md through the proxy: it judges each head and each chunk line on the client's bytes.
RSpec.describe "the proxy: the rules of the parser", once: "the program knows no Ruby" do
  def server = @server

  def start(ru = HttpApps.ru(:echo), config = "")
    config = "max_workers 1\ncompress true\nhost '127.0.0.1'\nport 0\n#{config}"
    @server = Server.ready(ru: ru, fastrack: true, config: config, files: { "public/a.txt" => "a" }, options: { "Host" => nil, "Port" => nil })
  end

  before(:context) { start }

  # What the app sees of a request, by the names that the examples use.
  seen_by_app = lambda do |response|
    echoed = HttpApps::Echo.read(response)
    env = echoed.fetch("env")
    keys = { "method" => "REQUEST_METHOD", "uri" => "REQUEST_URI", "path" => "PATH_INFO", "query" => "QUERY_STRING", "host" => "HTTP_HOST", "x" => "HTTP_X" }
    env["PATH_INFO"] = "*" if env.values_at("PATH_INFO", "REQUEST_URI") == ["", "*"]
    keys.transform_values { |key| env[key] }.merge("body" => echoed.fetch("body"))
  end

  # The response to bytes that come in one packet, or in two.
  def exchange(bytes, cut = 0)
    HttpPeer.open(server) do |peer|
      peer.write(bytes.byteslice(0, cut)) && server.get("/between") if cut.positive?
      peer.write(bytes.byteslice(cut..))
      # hyper answers HTTP/1.0 with its version.
      peer.read_until(%r{^HTTP/1\.[01] [2-5]\d\d })
      peer.finish_sending
      HttpResponse.parse(peer.read_to_end)
    end
  end

  # hyper takes as many trailers as fields.
  examples = HttpRules.examples.reject { |example| example.bytes.scan("T: v").size > 128 }

  examples.group_by(&:rule).each do |rule, group|
    it "#{rule}: #{group.map(&:status).uniq.sort.join(" or ")}, in one packet and in two" do
      group.each do |example|
        responses = [0, example.bytes.bytesize / 2].uniq.map { |cut| exchange(example.bytes, cut) }
        expect(responses.map(&:status)).to all(eq(example.status)), example.bytes[0, 200].inspect
        if example.status == 200
          expect(responses.map(&seen_by_app)).to all(include(example.seen)), example.bytes[0, 200].inspect
        else
          expect(responses.map { |response| response.headers["Connection"] }).to all(eq("close")), example.bytes[0, 200].inspect
        end
      end
    end
  end

  it "a refused request behind good ones is answered after them, and is the last one" do
    good = message("GET /good HTTP/1.1", "Host: a")
    wire, ending = HttpPeer.exchange(server, good * 2 + message("GET / HTTP/1.1") + good)
    expect([HttpResponse.all(wire).map(&:status), ending]).to eq([[200, 200, 400], :closed])
  end

  it "a request behind a broken body is none" do
    body = message("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "3 \r\nabc\r\n0\r\n\r\n"
    wire, = HttpPeer.exchange(server, body + message("GET /smuggled HTTP/1.1", "Host: a"))
    expect(HttpResponse.all(wire).map(&:status)).to eq([400])
  end

  it "files and redirects are not answered before Host is checked" do
    start(HttpApps.ru(:echo), "public_files 'public'\n")
    { message("GET /a.txt HTTP/1.1") => 400, message("GET /a.txt HTTP/1.1", "Host: a b") => 400, message("GET /a.txt HTTP/1.1", "Host: a", "Host: a") => 400,
      message("GET /a.txt HTTP/1.1", "Host: a") => 200 }.each do |bytes, status|
      expect(HttpResponse.all(HttpPeer.exchange(server, bytes, half_close: false).first).first.status).to eq(status), bytes if status == 400
      expect(server.get("/a.txt").status).to eq(200)
    end
  end

  it "limits count the client's bytes, and as many as may be reach the app" do
    limits = "max_request_target 100\nmax_header_size 1000\nmax_header_fields 10\n"
    start(HttpApps.ru(:echo), limits)
    rest = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n".bytesize
    { 414 => ->(more) { ["GET /#{"a" * (99 + more)} HTTP/1.1", "Host: a"] },
      431 => ->(more) { ["GET / HTTP/1.1", "Host: a", "X: #{"x" * (1000 - rest + more)}"] },
      "431" => ->(more) { ["GET / HTTP/1.1", "Host: a", *["X: y"] * (9 + more)] } }.each do |status, head|
      expect([0, 1].map { |more| exchange(message(*head.call(more))).status }).to eq([200, status.to_i])
    end
  end

  it "larger limits hold, too" do
    start(HttpApps.ru(:echo), "max_request_target 100_000\nmax_header_size 300_000\nmax_header_fields 300\n")
    bytes = message("GET /#{"a" * 90_000} HTTP/1.1", "Host: a", "Connection: close", *["X: #{"y" * 500}"] * 298)
    response = HttpResponse.parse(HttpPeer.exchange(server, bytes).first)
    expect([response.status, HttpApps::Echo.read(response)["env"]["PATH_INFO"].bytesize]).to eq([200, 90_001])
  end
end
