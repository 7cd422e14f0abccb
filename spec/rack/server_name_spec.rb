# frozen_string_literal: true

require "rack"

RSpec.describe "D16 SERVER_NAME and SERVER_PORT" do
  before(:context) { serve(HttpApps.ru(:echo)) }

  def names(*lines) = env_of(*lines).values_at("SERVER_NAME", "SERVER_PORT")
  def listeners = ["127.0.0.1", server.port.to_s]

  many = (1..40).map { |nr| "X-#{nr}: #{nr}" }

  {
    "Host's, and the port of http" => [["GET / HTTP/1.1", "Host: example.org"], %w[example.org 80]],
    "Host's, as it was sent" => [["GET / HTTP/1.1", "host: eXample.ORG."], %w[eXample.ORG. 80]],
    "Host's with its port" => [["GET / HTTP/1.1", "Host: example.org:8080"], %w[example.org 8080]],
    "Host's whose port is empty" => [["GET / HTTP/1.1", "Host: example.org:"], %w[example.org 80]],
    "Host's that is an IPv4 address" => [["GET / HTTP/1.1", "Host: 10.0.0.1"], %w[10.0.0.1 80]],
    "Host's that is an IPv6 address" => [["GET / HTTP/1.1", "Host: [2001:db8::1]"], %w[[2001:db8::1] 80]],
    "Host's that is an IPv6 address with a port" => [["GET / HTTP/1.1", "Host: [::1]:81"], %w[[::1] 81]],
    "Host's that is digits alone" => [["GET / HTTP/1.1", "Host: 8080"], %w[8080 80]],
    "Host's after other fields" => [["GET / HTTP/1.1", "Accept: a", "X-Other: b", "Host: example.org:81", "User-Agent: c"], %w[example.org 81]],
    "Host's of HTTP/1.0" => [["GET / HTTP/1.0", "Host: example.org:81"], %w[example.org 81]],
    "Host's with OPTIONS *" => [["OPTIONS * HTTP/1.1", "Host: example.org"], %w[example.org 80]],
    "Host's among fields with the same name" => [["GET / HTTP/1.1", "X-A: 1", "X_A: 2", "Host: example.org:81"], %w[example.org 81]],
    "Host's among fields with the same name, and the port of http" => [["GET / HTTP/1.1", "X-A: 1", "X-A: 2", "Host: example.org"], %w[example.org 80]],
    "Host's among many fields" => [["GET / HTTP/1.1", *many, "Host: example.org"], %w[example.org 80]],
    "an absolute target's" => [["GET http://other.example:81/a HTTP/1.1", "Host: example.org:82"], %w[other.example 81]],
    "an absolute target's, and the port of http" => [["GET http://other.example/a HTTP/1.1", "Host: example.org:82"], %w[other.example 80]],
    "an absolute target's, and the port of https" => [["GET HTTPS://other.example HTTP/1.1", "Host: example.org"], %w[other.example 443]],
    "an absolute target's without Host" => [["GET http://other.example/ HTTP/1.0", "User-Agent: a"], %w[other.example 80]]
  }.each do |what, (lines, expected)|
    it "D16 are #{what}" do
      expect(names(*lines)).to eq(expected)
    end
  end

  it "D16 are the listener's where the request names no host" do
    expect([names("GET / HTTP/1.0"), names("GET / HTTP/1.0", "User-Agent: a", "Accept: b")]).to all(eq(listeners))
  end

  it "D16 are each request's own on one connection, whatever order its fields have" do
    orders = ["Host: a.example", "User-Agent: x", "Accept: y", "Cookie: z"].permutation.first(20)
    lines = orders.each_with_index.flat_map do |fields, nr|
      with_port = fields.map { |field| field.start_with?("Host") ? "#{field}:#{nr + 1}" : field }
      [["GET / HTTP/1.1", *fields], ["GET / HTTP/1.1", *with_port], ["GET / HTTP/1.0", *fields.grep_v(/Host/), "Connection: keep-alive"]]
    end
    expected = (1..20).flat_map { |port| [%w[a.example 80], ["a.example", port.to_s], listeners] }
    HttpPeer.open(server) do |peer|
      peer.write(lines.map { |one| message(*one) }.join << message("GET / HTTP/1.1", "Host: a", "Connection: close"))
      seen = HttpResponse.all(peer.read_to_end).map { |response| HttpApps::Echo.read(response).fetch("env").values_at("SERVER_NAME", "SERVER_PORT") }
      expect(seen[0...-1]).to eq(expected)
    end
  end
end

RSpec.describe "D16 an app that goes by SERVER_NAME" do
  before(:context) do
    serve(<<~'RUBY')
      require "rack"
      answer = ->(text) { ->(env) { [200, {}, [text, " ", Rack::Request.new(env).url]] } }
      map("http://api.example.org/") { run answer.call("api") }
      map("http://www.example.org/shop") { run answer.call("shop") }
      map("/") { run answer.call("default") }
    RUBY
  end

  it "D16 Rack::URLMap finds the host's app, with a port or without one" do
    seen = ["api.example.org", "api.example.org:9292", "other.example"].map { |host| talk("GET / HTTP/1.1", "Host: #{host}").body }
    expect(seen).to eq(["api http://api.example.org/", "api http://api.example.org:9292/", "default http://other.example/"])
    expect(talk("GET http://www.example.org:81/shop HTTP/1.1", "Host: a").body).to eq("shop http://www.example.org:81/shop")
  end

  it "D16 a URL of a request without a host is the listener's" do
    expect(talk("GET /a HTTP/1.0").body).to eq("default #{server.url("/a")}")
  end
end
