# frozen_string_literal: true

require "support/streams_app"

RSpec.describe "A stream" do
  include StreamsApp

  StreamsApp::KINDS.each do |kind|
    it "holds no thread of MaxThreads (#{kind})" do
      serve_streams(threads: 2)
      peers = Array.new(7) { |number| stream("/#{kind}/events?#{number}", streaming: number + 1) }
      ones = waiting(2)
      expect(server.get("/peak").body).to eq("2") if ones.empty?
      go
      expect(statuses(ones)).to eq([200, 200])
      server.write("end", "")
      expect(peers.map { |peer| peer.read_until(/last/) }).to all(include("data: last"))
      await_streams(0)
    end
  end

  it "lets no more than MaxThreads requests into the app" do
    serve_streams(threads: 2)
    7.times { |number| stream("/each/events?#{number}", streaming: number + 1) }
    ones = waiting(2)
    others = Array.new(5) { request("/wait?later") }
    await_waiting(5)
    go
    expect(statuses(ones + others)).to all(eq(200))
    expect(server.get("/peak").body).to eq("2")
  end

  it "gets each event at once" do
    serve_streams(threads: 2)
    peers = Array.new(5) { |number| stream("/each/events?#{number}", streaming: number + 1) }
    3.times do |number|
      server.write("event.#{number + 1}", "")
      peers.each { |peer| peer.read_until(/data: #{number + 1}\n/) }
    end
  end

  it "is followed by the next request on its connection" do
    serve_streams(threads: 2)
    peers = Array.new(4) { |number| stream("/each/events?#{number}", streaming: number + 1) }
    peers.each { |peer| peer.write("GET /?next HTTP/1.1\r\nHost: a\r\n\r\n") }
    # They are looked at meanwhile.
    await_look
    server.write("end", "")
    expect(peers.map { |peer| peer.read_until(/last.*200 OK.*ok\z/m) }.size).to eq(4)
  end

  it "counts as a request beyond MaxStreams" do
    serve_streams(threads: 2, options: { MaxStreams: 3 })
    3.times { |number| stream("/each/events?#{number}", streaming: number + 1) }
    peers = Array.new(2) { stream("/each/events?more") }
    late = request("/wait?late")
    await_waiting(1)
    expect([streams, server.lines_of("waiting")]).to eq([3, []])
    server.write("end", "")
    eventually { server.lines_of("waiting") == ["late"] }
    go
    expect([late.value.status, *peers.map { |peer| peer.read_until(/last/) }]).to match([200, /last/, /last/])
  end

  it "is a request where the number of streams is 0, as by default with one thread" do
    serve_streams(threads: 1)
    expect(server.get("/env").body).to eq("false  false")
    stream("/each/events?only")
    late = request("/wait?late")
    await_waiting(1)
    expect([streams, server.lines_of("waiting")]).to eq([0, []])
    server.write("end", "")
    go
    expect(late.value.status).to eq(200)
  end

  it "holds none with one thread either, where MaxStreams says so" do
    serve_streams(threads: 1, options: { MaxStreams: 5 })
    expect(server.get("/env").body).to eq("true fastrack thread 1 false")
    4.times { |number| stream("/each/events?#{number}", streaming: number + 1) }
    expect(server.get("/").body).to eq("ok")
  end

  it "is none where the length of the body is known" do
    serve_streams(threads: 2)
    2.times { HttpPeer.new(server).write("GET /length/events HTTP/1.1\r\nHost: a\r\n\r\n").read_until(/data: first/) }
    late = request("/wait?late")
    await_waiting(1)
    expect([streams, server.lines_of("waiting")]).to eq([0, []])
    server.write("end", "")
    go
    expect(late.value.status).to eq(200)
  end

  it "is in the way of requests while it computes, as a request is", if: RUBY_VERSION >= "3.2" do
    serve_streams(threads: 2)
    stream("/each/busy", streaming: 1)
    one = request("/wait?one").tap { eventually { server.lines_of("waiting") == ["one"] } }
    two = request("/wait?two")
    await_waiting(1)
    expect(server.lines_of("waiting")).to eq(["one"])
    server.write("end", "")
    eventually { server.lines_of("waiting") == %w[one two] }
    go
    expect(statuses([one, two])).to eq([200, 200])
  end

  it "has its thread end when there are enough others, and be used again until then" do
    serve_streams(threads: 2)
    20.times { |number| stream("/each/events?#{number}", streaming: number + 1) }
    expect(app_threads).to be_between(21, 24)
    server.write("end", "")
    await_streams(0)
    eventually { app_threads <= 4 }
    server.remove("end")
    4.times do |round|
      peer = stream("/each/events?again#{round}", streaming: 1)
      server.write("end", "")
      peer.read_to_end if round.negative?
      await_streams(0)
      server.remove("end")
    end
    eventually { app_threads <= 4 }
  end

  it "goes on when other requests reach MaxRequestPerChild, and the worker is replaced when it is over" do
    serve_streams(threads: 2, options: { MaxRequestPerChild: 5, MinRequestPerChild: 5 })
    before = server.workers
    peer = stream("/each/events?long", streaming: 1)
    4.times { server.get("/") }
    # By its successor.
    eventually { server.get("/threads", timeout: 10).body == "2" }
    server.write("event.1", "")
    peer.read_until(/data: 1\n/)
    server.write("end", "")
    expect(peer.read_until(/last/)).to include("last")
    server.await_others(before)
  end

  it "is waited for by a server that stops" do
    serve_streams(threads: 2)
    peer = stream("/each/events?long", streaming: 1)
    server.signal(:TERM)
    eventually { server.refused? }
    server.write("event.1", "")
    peer.read_until(/data: 1\n/)
    server.write("end", "")
    expect(peer.read_until(/last/)).to include("last")
    expect(server.wait).to be_success
  end
end
