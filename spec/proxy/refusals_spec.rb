# frozen_string_literal: true

require "tempfile"

# As without the proxy: spec/http/early_refusal_spec.rb and spec/http/expect_spec.rb.
RSpec.describe "the proxy: a refusal that comes while the client sends", once: "the program knows no Ruby" do
  def server = @server

  def start(config, ru = HttpApps.ru(:echo))
    config = "max_workers 1\ncompress true\nhost '127.0.0.1'\nport 0\n#{config}"
    @server = Server.ready(ru: ru, fastrack: true, config: config, options: { "Host" => nil, "Port" => nil })
  end

  size = 50_000_000

  # The response that a client reads which first sends all it has to say.
  def answer(head, size, to: server)
    HttpPeer.open(to) do |peer|
      peer.write!(head)
      (size / 100_000).times { peer.write!("u" * 100_000) }
      response = HttpResponse.parse(peer.read_to_end)
      expect(peer.ending).to eq(:closed)
      response
    end
  end

  def upload(size, path = "/", *fields) = message("POST #{path} HTTP/1.1", "Host: a", "Content-Length: #{size}", *fields)

  context "of a body that is too large" do
    before(:context) { start("max_body_size 1_000_000\n") }

    it "is read by a client that sends 50 MB first, and closes the connection" do
      responses = [answer(upload(size), size), answer("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", size)]
      expect(responses.map { |response| [response.status, response.headers["Connection"]] }).to eq([[413, "close"], [400, "close"]])
    end

    it "comes without 100 Continue to a client that expects one" do
      HttpPeer.open(server) do |peer|
        peer.write(upload(size, "/", "Expect: 100-continue"))
        expect(HttpResponse.all(peer.read_to_end).map(&:status)).to eq([413])
      end
    end
  end

  it "of the app's, which does not read the body, is read" do
    start("stream_body true\n", 'run ->(env) { [env["PATH_INFO"][1..].to_i, { "content-length" => "2" }, ["no"]] }')
    expect([401, 403].map { |status| answer(upload(size, "/#{status}"), size).status }).to eq([401, 403])
  end

  it "of the proxy's own, a redirect to https, is read" do
    FreePort.keep(2) do |port|
      config = "bind 'ssl://127.0.0.1:#{port}?cert=a.pem&key=a.key'\nlisten '127.0.0.1:#{port + 1}'\nforce_ssl true\nmax_workers 1\n"
      @server = Server.ready(ru: HttpApps.ru(:echo), fastrack: true, config: config, files: Edge.files, options: { "Host" => nil, "Port" => nil })
      plain = Object.new.tap { |one| one.define_singleton_method(:connect) { TCPSocket.new("127.0.0.1", port + 1) } }
      response = answer(upload(size), size, to: plain)
      expect([response.status, response.headers["Connection"]]).to eq([307, "close"])
    end
  end

  { "with a length" => ["Content-Length: 3", "abc"], "in chunks" => ["Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"] }.each do |what, (field, body)|
    it "is none where the app takes the body: 100 Continue comes before it, #{what}" do
      start("")
      HttpPeer.open(server) do |peer|
        peer.write(message("POST / HTTP/1.1", "Host: a", "Connection: close", "Expect: 100-continue", field)).read_until(/\r\n\r\n/)
        interim, final = HttpResponse.all(peer.write(body).read_to_end)
        expect(interim.raw).to eq("HTTP/1.1 100 Continue\r\n\r\n")
        expect(HttpApps::Echo.read(final)).to include("body" => "abc", "env" => include("HTTP_EXPECT" => "100-continue"))
      end
    end
  end
end
