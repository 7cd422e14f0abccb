# frozen_string_literal: true

require "json"

RSpec.describe "the proxy: what is seen of it", once: "the program knows no Ruby" do
  def server = @server
  def monitor(path) = Open3.capture2e("curl", "-sS", "--unix-socket", server.file("c.sock"), "http://localhost#{path}").first

  it "status, metrics and the table of workers tell of it" do
    @server = Edge.start(config: "control_path 'c.sock'\npublic_files 'public'\n", files: { "public/a.txt" => "a" })
    Edge.curl(server, "--http2")
    Edge.curl(server, "--http2", path: "/a.txt")
    found = eventually { JSON.parse(monitor("/status.json"))["proxy"]&.then { |one| one if one["requests"] == 2 } }
    expect(found).to include("pid" => Edge.proxy(server), "handshakes" => 2, "h2_requests" => 2, "files" => 1, "bad_gateway" => 0,
                             "certificate_not_after" => be_within(86_400).of(Time.now.to_i + (30 * 86_400)))
    expect(monitor("/metrics")).to match(/^fastrack_proxy_requests_total 2(?:\.0)?$/).and match(/^fastrack_proxy_certificate_end_seconds \d+/)
    table, = Open3.capture2e(*Server::FASTRACK, "status", "--control", server.file("c.sock"))
    expect(table).to match(/^proxy +#{Edge.proxy(server)} \d+ open, 2 requests, 2 of HTTP\/2, 1 files, 2 handshakes/)
  end

  it "nothing is said of it where there is none" do
    @server = Server.ready(ru: HttpApps.ru(:echo), fastrack: true, config: "host '127.0.0.1'\nport 0\ncontrol_path 'c.sock'\nmax_workers 1",
                           options: { "Host" => nil, "Port" => nil })
    expect([JSON.parse(monitor("/status.json"))["proxy"], monitor("/metrics")[/proxy/]]).to eq([nil, nil])
  end

  it "a certificate that ends soon is in the log" do
    @server = Edge.start(files: Edge.files(days: 3))
    server.await_log(/proxy: the certificate .*a\.pem expires in [23] days/)
  end

  it "many streams of one connection are requests of their own, and HUP closes none", once: "h2load's streams" do
    skip "no h2load" unless ENV.fetch("PATH").split(":").any? { |dir| File.executable?(File.join(dir, "h2load")) }
    @server = Edge.start(ru: "run ->(_) { sleep 0.001; [200, {}, ['hello']] }")
    load = IO.popen(["h2load", "-n", "3000", "-c", "3", "-m", "20", "https://127.0.0.1:#{server.port}/", { err: %i[child out] }])
    2.times { |time| server.reload && server.await_ready(time + 2) }
    said = load.read
    expect(said).to include("requests: 3000 total, 3000 started, 3000 done, 3000 succeeded, 0 failed, 0 errored, 0 timeout")
  ensure
    load&.close
  end
end
