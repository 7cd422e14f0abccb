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

  it "its memory is in the sum, beside that of each process" do
    @server = Edge.start(config: "control_path 'c.sock'\n")
    found = eventually { JSON.parse(monitor("/status.json")).then { |one| one if one.dig("proxy", "pss") && one["workers"].all? { |worker| worker["pss"] } } }
    expect(found["proxy"]).to include("rss" => be > 1 << 20, "private" => be_positive, "cpu_seconds" => be >= 0)
    expect(monitor("/metrics")).to match(/^fastrack_resident_memory_bytes\{process="proxy"\} \d{7,}/).and match(/^fastrack_cpu_seconds_total\{process="proxy"\} /)
    table, = Open3.capture2e(*Server::FASTRACK, "status", "--control", server.file("c.sock"))
    sum = [found["master"], found["mold"], found["generation_0"], found["proxy"], *found["workers"]].compact.sum { |one| one["pss"].to_i } / 1_048_576.0
    expect([table[/memory (\d+) MB/, 1].to_i, table[/^proxy .*/]]).to match([be_within(5).of(sum), match(/, \d+ MB, certificate until /)])
  end

  it "502 has its cause, and clients that leave in their upload are none" do
    ru = "run ->(env) { env['rack.input'].read; env['PATH_INFO'] == '/die' ? Process.kill(:KILL, Process.pid) && sleep : [200, {}, ['ok']] }"
    @server = Edge.start(ru: ru, config: "control_path 'c.sock'\n")
    text, = Edge.curl(server, "-d", "a", "-o", File::NULL, "-w", "%{http_code}", path: "/die")
    expect(text).to eq("502")
    tls = Edge.connect(server)
    tls.write("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc")
    tls.close
    eventually { JSON.parse(monitor("/status.json"))["proxy"].values_at("bad_gateway", "worker_died", "broken_uploads", "no_worker") == [1, 1, 1, 0] }
    expect(monitor("/metrics")).to match(/^fastrack_proxy_failed_requests_total\{cause="worker_died"\} 1/).and match(/^fastrack_proxy_broken_uploads_total 1/)
    table, = Open3.capture2e(*Server::FASTRACK, "status", "--control", server.file("c.sock"))
    expect(table).to match(/^proxy .*, 1 502 \(worker died\), /)
  end

  it "docs/monitor.md names each of its metrics, and no other" do
    @server = Edge.start(config: "control_path 'c.sock'\n")
    names = eventually { monitor("/metrics").scan(/^# TYPE (fastrack_proxy_\w+)/).flatten.then { |found| found if found.size > 15 } }
    page = File.read(File.join(Server::ROOT, "docs/monitor.md"))
    named = page.scan(/`(fastrack_proxy_\w+?)(?:_total)?`/).flatten.uniq
    expect(named).to match_array(names)
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
