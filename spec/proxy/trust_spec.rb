# frozen_string_literal: true

require "support/lone_proxy"

RSpec.describe "the proxy: whose word about the client counts", once: "the program knows no Ruby" do
  def server = @server

  # The options of curl that send these fields.
  def sending(*fields) = fields.flat_map { |field| ["-H", field] }

  def plain(config = "")
    config = "max_workers 1\ncompress true\nhost '127.0.0.1'\nport 0\n#{config}"
    @server = Server.ready(ru: HttpApps.ru(:echo), fastrack: true, config: config, options: { "Host" => nil, "Port" => nil })
  end

  # The client's address and scheme for the app.
  def client(*fields, scheme: "http")
    Edge.env(server, *sending(*fields), scheme: scheme).values_at("REMOTE_ADDR", "rack.url_scheme")
  end

  about_client = ["X-Forwarded-Host: other.example", "X-Forwarded-Proto: https", "X_Forwarded_Proto: https", "Forwarded: for=192.0.2.9;host=other.example",
                  "X-Real-IP: 192.0.2.9", "X_Real_IP: 192.0.2.9", "X-Client-IP: 192.0.2.9", "X-Cluster-Client-IP: 192.0.2.9", "Client-IP: 192.0.2.9",
                  "True-Client-IP: 192.0.2.9", "CF-Connecting-IP: 192.0.2.9", "Fastly-Client-IP: 192.0.2.9", "X-Original-Host: other.example",
                  "X-Scheme: https", "Front-End-Https: on"]

  context "behind a balancer that is trusted" do
    before(:context) { plain("trusted_proxies '127.0.0.0/8', '10.0.0.0/8'\n") }

    {
      "6.6.6.6, 203.0.113.9, 10.0.0.2" => "203.0.113.9", "6.6.6.6, x, 203.0.113.9" => "203.0.113.9", "127.0.0.1, x, 203.0.113.9" => "203.0.113.9",
      "unknown, 203.0.113.9" => "203.0.113.9", "\xff, 203.0.113.9".b => "203.0.113.9", "6.6.6.6, unknown" => "127.0.0.1",
      "6.6.6.6, unknown, 10.0.0.2" => "10.0.0.2", ", 203.0.113.9,, 10.0.0.2," => "203.0.113.9", "203.0.113.9:4711" => "203.0.113.9",
      "[2001:db8::9]" => "2001:db8::9", "[2001:db8::9]:443" => "2001:db8::9", "10.0.0.3, 10.0.0.2" => "10.0.0.3"
    }.each do |field, address|
      it "the client of X-Forwarded-For: #{field.inspect} is #{address}" do
        expect(client("X-Forwarded-For: #{field}").first).to eq(address)
      end
    end

    it "the fields of two lines are one list" do
      expect(client("X-Forwarded-For: 127.0.0.1", "X-Forwarded-For: 203.0.113.9", "X-Forwarded-For: 10.0.0.2").first).to eq("203.0.113.9")
    end

    { "wss" => "https", "ws" => "http", "https, http" => "https", "HTTPS" => "https" }.each do |field, scheme|
      it "X-Forwarded-Proto: #{field} is #{scheme}" do
        expect(client("X-Forwarded-Proto: #{field}").last).to eq(scheme)
      end
    end

    it "of several schemes, the client's is the one that was added with its address" do
      addresses = "X-Forwarded-For: 6.6.6.6, 203.0.113.9, 10.0.0.2"
      expect(client(addresses, "X-Forwarded-Proto: https, http, https").last).to eq("http")
      expect(client(addresses, "X-Forwarded-Proto: http, https, http").last).to eq("https")
    end

    it "Rack sees the client's scheme, too, where several proxies name one" do
      env = Edge.env(server, *sending("X-Forwarded-For: 203.0.113.9, 10.0.0.2", "X-Forwarded-Proto: https, http"), scheme: "http")
      expect(env).to include("HTTP_X_FORWARDED_PROTO" => "https", "HTTP_X_FORWARDED_FOR" => "203.0.113.9, 10.0.0.2")
    end

    it "the app gets all fields about the client" do
      env = Edge.env(server, *sending(*about_client), scheme: "http")
      expect(env).to include("HTTP_X_FORWARDED_HOST" => "other.example", "HTTP_FORWARDED" => /192/, "HTTP_X_REAL_IP" => "192.0.2.9", "HTTP_TRUE_CLIENT_IP" => "192.0.2.9")
    end
  end

  it "a trusted balancer that speaks TLS keeps its fields" do
    @server = Edge.start(config: "trusted_proxies '127.0.0.0/8'\n")
    env = Edge.env(server, *sending("X-Forwarded-For: 203.0.113.9", "X-Forwarded-Host: other.example", "X-Forwarded-Proto: http"))
    expect(env).to include("REMOTE_ADDR" => "203.0.113.9", "HTTP_X_FORWARDED_HOST" => "other.example", "rack.url_scheme" => "http")
  end

  { "with no trusted proxies" => "", "that is none of the trusted proxies" => "trusted_proxies '10.0.0.0/8'\n" }.each do |what, config|
    it "a client #{what} has all its words about itself removed, on a port without TLS, too" do
      plain(config)
      env = Edge.env(server, *sending("X-Forwarded-For: 192.0.2.9", *about_client), scheme: "http")
      expect(env.select { |_, value| value.to_s.match?(/192\.0\.2\.9|other\.example/) }).to be_empty
      expect(env).to include("REMOTE_ADDR" => "127.0.0.1", "rack.url_scheme" => "http")
      expect(env.keys.grep(/FORWARDED|SCHEME|HTTPS/i)).to eq(["rack.url_scheme"])
    end
  end

  # A router in a private network, by the PROXY protocol: this machine's own addresses are none.
  { "10.1.2.3" => true, "203.0.113.8" => false }.each do |peer, is_router|
    it "fields of #{peer} are #{is_router ? "kept" : "removed"} without trusted_proxies on a port without TLS, and name no address" do
      Dir.mktmpdir do |dir|
        LoneProxy.open(dir, h2c: false, listeners: [{ name: "a", descriptor: 0, proxy_protocol: true }]) do |proxy|
          client = proxy.connect
          client.write("PROXY TCP4 #{peer} 127.0.0.1 1234 80\r\n", message("GET / HTTP/1.1", "Host: a", "X-Forwarded-For: 192.0.2.9", "X-Forwarded-Proto: https"))
          worker = proxy.worker
          head = worker.gets("\r\n\r\n")
          expect(head.include?("x-forwarded-proto: https\r\n")).to be(is_router)
          expect(head).to include("fastrack-client: #{peer} 1234 http HTTP/1.1\r\n")
        ensure
          [client, worker].each { |io| io&.close }
        end
      end
    end
  end

  it "a client asks for no names of files: X-Sendfile-Type and X-Accel-Mapping do not reach the app" do
    names = ["X-Sendfile-Type: X-Accel-Redirect", "X_Sendfile_Type: X-Accel-Redirect", "X-Accel-Mapping: /=/", "X_Accel_Mapping: /=/"]
    plain("trusted_proxies '127.0.0.0/8'\n")
    expect(Edge.env(server, *sending(*names), scheme: "http").keys.grep(/SENDFILE|ACCEL/)).to be_empty
  end
end
