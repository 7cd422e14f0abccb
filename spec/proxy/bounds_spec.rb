# frozen_string_literal: true

RSpec.describe "the proxy: bounds", once: "the program knows no Ruby" do
  def server = @server

  before(:context) { @server = Edge.start(config: "header_timeout 1\nkeep_alive_timeout 2\nmax_header_size '8K'\n") }

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
    [silent, half, idle].each { |io| expect(closed_after(io)).to be < GcMode.patient(15) }
  end

  it "an idle connection is closed after KeepAliveTimeout, and not while it is used" do
    tls = Edge.connect(server)
    6.times { Edge.ask(tls) && sleep(0.5) }
    expect(closed_after(tls)).to be_between(0.9, GcMode.patient(15))
  end

  it "fields beyond MaxHeaderSize are refused" do
    %w[--http1.1 --http2].each do |option|
      text, = Edge.curl(server, option, "-o", File::NULL, "-w", "%{http_code}", "-H", "X-Large: #{"a" * 20_000}")
      expect(text).to match(/431|000|400/)
    end
    expect(Edge.curl(server).last).to be_success
  end

  it "other clients are served while many connect and send nothing" do
    many = Array.new(200) { server.connect }
    expect(Edge.curl(server).last).to be_success
    many.each(&:close)
  end
end
