# frozen_string_literal: true

require "support/streams_app"

RSpec.describe "Figures of streams", once: "the monitor and the access log" do
  include StreamsApp

  it "are in the status, the metrics and `fastrack status`, apart from requests in the app" do
    serve_streams(threads: 2)
    3.times { |number| stream("/each/events?#{number}", streaming: number + 1) }
    status = monitor.await("the worker is not idle") { |found| found["workers"].first["state"] == "idle" }
    expect([status["workers"].first.values_at("streams", "in_app", "state"), status["streams_begun"]]).to eq([[3, 0, "idle"], 3])
    expect(status["connections"].values_at("streaming", "in_app")).to eq([3, 0])
    metrics = monitor.metrics
    expect(metrics.values_at('fastrack_connections{state="streaming"}', 'fastrack_worker_streams{process="worker[0]"}', "fastrack_streams_begun_total")).to eq([3, 3, 3])
    text, = Open3.capture2e(RbConfig.ruby, "-w", Server::COMMAND, "status", "--control", server.file("app.control"))
    expect(text).to include("  3 streams  ")
    server.write("end", "")
    await_streams(0)
    expect(monitor.status["streams_begun"]).to eq(3)
  end

  it "are in Fastrack.stats" do
    ru = StreamsApp::RU.sub('when "peak"', %q(when "stats" then next [200, {}, [Fastrack.stats[:totals].then { |all| [all[:streams], all[:connections][:streaming]].inspect }]]
      when "peak"))
    serve(threads: 2, ru: ru, options: { Pid: "app.pid" })
    @monitor = MonitorClient.new(server.file("app.control"))
    2.times { |number| stream("/each/events?#{number}", streaming: number + 1) }
    expect(server.get("/stats").body).to eq("[2, 2]")
  end

  it "come into the access log at the stream's end, with all bytes and the whole time" do
    serve_streams(threads: 2, options: { AccessLog: "access.log", AccessLogFormat: "json" })
    peer = stream("/each/events?one", streaming: 1)
    server.get("/")
    eventually { server.lines_of("access.log").size == 1 }
    # A part of the stream's time.
    sleep 0.5
    server.write("end", "")
    peer.read_until(/last/)
    lines = eventually { server.lines_of("access.log").then { |found| found if found.size == 2 } }
    line = JSON.parse(lines.last)
    text = lines.last
    expect([text, line.values_at("status", "bytes")]).to match([%r{/each/events}, [200, be > "data: first\n\ndata: last\n\n".bytesize]])
    expect(line.fetch("duration")).to be > 0.5
  end

  it "leave the times of requests alone: a stream counts until its head has left" do
    serve_streams(threads: 2)
    began = Eventually.now
    peer = stream("/each/events?one", streaming: 1)
    # Its head has left, and as much time again goes by, and more.
    head = Eventually.now - began
    sleep(head + 1)
    server.write("end", "")
    peer.read_until(/last/)
    await_streams(0)
    time = eventually { monitor.status["request_time"].then { |found| found if found["count"].positive? } }
    expect(time["sum"]).to be < head + 1
  end
end
