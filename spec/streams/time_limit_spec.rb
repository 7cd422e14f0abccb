# frozen_string_literal: true

require "support/streams_app"

RSpec.describe "The time limit of a stream", once: "the engine's clock" do
  include StreamsApp

  it "is none by default: RequestTimeout ends with its head" do
    serve_streams(threads: 2, options: { RequestTimeout: limit = GcMode.patient(1) })
    before = server.workers
    peer = stream("/each/events?long", streaming: 1)
    # The limit is to pass.
    sleep(limit * 1.5)
    server.write("event.1", "")
    peer.read_until(/data: 1\n/)
    expect(server.workers).to eq(before)
  end

  it "is StreamTimeout, which ends the stream, and neither its worker nor others" do
    serve_streams(threads: 2, options: { StreamTimeout: 3 })
    before = server.workers
    peer = stream("/each/silent?one", streaming: 1)
    peer.read_to_end
    eventually { server.lines_of("closed") == ["one"] }
    expect([peer.ending, server.lines_of("ended")]).to match([:reset, [/\Aone Fastrack::StreamTimeout true/]])
    expect([server.get("/").body, server.workers]).to eq(["ok", before])
  end

  it "is what the app has set by fastrack.timeout, before or after" do
    serve_streams(threads: 2, options: { StreamTimeout: 50, RequestTimeout: 50 })
    before = server.workers
    stream("/limited?3", streaming: 1).read_to_end
    server.await_log(%r{GET /limited has taken .* s: this worker ends})
    server.await_others(before)
  end

  it "is that of requests beyond MaxStreams" do
    serve_streams(threads: 2, options: { MaxStreams: 0, RequestTimeout: 1 })
    stream("/each/events?long").read_to_end
    server.await_log(%r{GET /each/events has taken .* s: this worker ends})
  end

  it "cuts streams with the worker when a request of the same worker is overdue, without a wait for them" do
    serve_streams(threads: 2, options: { RequestTimeout: 1, AccessLog: "access.log" })
    peer = stream("/each/events?long", streaming: 1)
    expect(server.get("/wait?never").status).to eq(504)
    peer.read_to_end
    expect(peer.ending).to eq(:reset)
    eventually { server.lines_of("access.log").grep(%r{GET /each/events\?long}).size == 1 }
  end
end
