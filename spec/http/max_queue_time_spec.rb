# frozen_string_literal: true

# A request that has waited for longer than MaxQueueTime is refused by the server.
RSpec.describe "MaxQueueTime", once: "measured and answered without Ruby" do
  # How many requests the app has had. `/slow` takes until there is a file `go`.
  let(:ru) { "count = 0\n#{Rackups::GATE.sub("[Process.pid.to_s]", "[(count += 1).to_s]")}" }

  def started(seconds_ago) = { "X-Request-Start" => "t=#{Process.clock_gettime(Process::CLOCK_REALTIME) - seconds_ago}" }

  it "answers with 503 and Retry-After, without the app, what has waited for longer by the router's clock" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1, MaxQueueTime: 60, ControlPath: "app.control" })
    expect(server.get("/", started(1)).body).to eq("1")
    refused = server.get("/", started(3600 - 1))
    expect([refused.status, refused.headers["retry-after"], refused.headers["connection"], refused.body])
      .to eq([503, "1", "close", "503 Service Unavailable: the server is overloaded\n"])
    expect(server.get("/").body).to eq("2")
    server.await_log(/^fastrack: 1 request has waited for more than 60 s, and got 503/)
    metrics = MonitorClient.new(server.file("app.control")).metrics
    expect(metrics).to include("fastrack_overloaded_requests_total" => 1, "fastrack_refused_requests_total" => 1)
  end

  it "tells how many it has refused, by the next request at the latest" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1, MaxQueueTime: 60 })
    5.times { expect(server.get("/", started(100)).status).to eq(503) }
    told = -> { server.log.scan(/^fastrack: (\d+) requests? ha(?:s|ve) waited for more than 60 s, and got 503/).flatten.sum(&:to_i) }
    Eventually.eventually(Server::DEADLINE, -> { server.log }) { server.get("/").status == 200 && told.call == 5 }
  end

  # What a client may say of the time of its request: it makes no wait shorter.
  [["new", nil, nil], ["kept", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", nil], ["new", nil, -1]].each do |kind, first, said|
    it "refuses, by its own clock, what has waited on a #{kind} connection#{", whatever its client says" if said}" do
      # A request that comes before a worker serves has waited, too.
      server = Server.ready(ru: ru, options: { MaxWorkers: 1, MaxQueueTime: limit = GcMode.patient(1) })
      HttpPeer.open(server) do |peer|
        peer.write(first).read_until(/\r\n\r\n1/) if first
        holding = SlowRequest.new(server)
        fields = said ? started(said).map { |field| field.join(": ") } : []
        peer.write([["POST / HTTP/1.1", "Host: h", "Content-Length: 2", *fields].join("\r\n"), "hi"].join("\r\n\r\n"))
        Eventually.eventually { peer.taken? } if first
        # What the request waits is what the limit is for.
        sleep limit * 1.4
        holding.finish
        expect(peer.read_to_end).to match(%r{HTTP/1.1 503 })
      end
      expect(server.get("/").status).to eq(200)
    end
  end
end
