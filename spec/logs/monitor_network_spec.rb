# frozen_string_literal: true

require "yaml"

# What Prometheus in another pod gets, and nobody else.
RSpec.describe "The monitor on all addresses (ControlListen 0.0.0.0)", linux: "a thread with descriptors of its own", once: "a thread without Ruby" do
  include MonitorHelpers

  token = MonitorHelpers::TOKEN

  before(:context) do
    @port = FreePort.keep do |port|
      @server = serving(config: %(control_listen "0.0.0.0:#{port}"\ncontrol_token ENV.fetch("CONTROL_TOKEN")\n), env: { CONTROL_TOKEN: token })
      port
    end
  end

  def from(address, verb, target, headers = {})
    socket = Clients.keep(TCPSocket.new(address, @port))
    socket.write("#{verb} #{target} HTTP/1.1\r\nHost: app:9394\r\n#{headers.map { |name, value| "#{name}: #{value}\r\n" }.join}\r\n")
    head, body = socket.read.split("\r\n\r\n", 2)
    [head[/\AHTTP\S+ (\d+)/, 1].to_i, head, body]
  end

  it "gives metrics and status to who knows the token" do
    %w[Bearer bearer].each do |scheme|
      status, _, body = from("127.0.0.2", "GET", "/metrics", "Authorization" => "#{scheme} #{token}")
      expect([status, body]).to match([200, /^fastrack_workers\{state="idle"\} 2/])
    end
    expect(JSON.parse(from("127.0.0.2", "GET", "/status.json", "Authorization" => "Bearer #{token}").last)).to include("pid" => @server.master)
  end

  it "asks all others for it, with 401" do
    [{}, { "Authorization" => "Bearer #{token.reverse}" }, { "Authorization" => "Bearer" }, { "Authorization" => "Basic #{token}" }].each do |headers|
      %w[/metrics /status.json / /healthz /nothing].each do |target|
        status, head, body = from("127.0.0.2", "GET", target, headers)
        expect([status, head, body]).to match([401, /^www-authenticate: Bearer\r?$/i, /the token is missing or wrong/])
      end
    end
  end

  it "does nothing to the server, token or not" do
    statuses = %w[/stop /restart /phased-restart /workers/+1].flat_map do |target|
      [{}, { "Authorization" => "Bearer #{token}" }].map { |headers| from("127.0.0.2", "POST", target, headers).first }
    end
    expect(statuses).to eq([401, 403] * 4)
    expect(monitor.status).to include("phase" => "serving", "workers_wanted" => 2)
  end

  it "has no token in its log" do
    expect(@server.log).to include("* Monitor: ", "0.0.0.0:#{@port}")
    expect(@server.log).not_to include(token)
  end

  it "is what docs/docker-and-kubernetes.md has Prometheus scrape" do
    text = File.read(File.join(Server::ROOT, "docs/docker-and-kubernetes.md"))[/^## Prometheus$.*?(?=^## )/m]
    blocks = text.scan(/^```(\w+)\n(.*?)^```/m)
    container, prometheus = blocks.select { |kind, _| kind == "yaml" }.map { |_, yaml| YAML.safe_load(yaml) }
    port = blocks.assoc("ruby").last[/^control_listen "0\.0\.0\.0:(\d+)"$/, 1]
    job = prometheus["scrape_configs"].first
    named = container["ports"].find { |one| one["name"] == job["relabel_configs"].first["regex"] }
    expect([named["containerPort"].to_s, text[/targets: \["app:(\d+)"\]/, 1]]).to eq([port, port])
    credentials = job["authorization"]
    expect(from("127.0.0.2", "GET", "/metrics", "Authorization" => "#{credentials.fetch("type", "Bearer")} #{credentials["credentials"]}").first).to eq(200)
  end
end
