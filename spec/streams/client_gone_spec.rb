# frozen_string_literal: true

require "support/streams_app"

RSpec.describe "A client that leaves its stream" do
  include StreamsApp

  StreamsApp::KINDS.product(%i[close abort]).each do |kind, manner|
    it "ends it within a second, though the app writes nothing (#{kind}, #{manner})" do
      serve_streams(threads: 2)
      peers = Array.new(10) { |number| stream("/#{kind}/silent?#{number}", streaming: number + 1) }
      peers.each(&manner)
      # The server takes more where the machine stands still.
      eventually(5) { server.lines_of("ended").size == 10 }
      # By an exception that is that of a write, too; then the body is closed.
      expect(server.lines_of("ended")).to all(match(/ Fastrack::ClientGone true true\z/))
      eventually { server.lines_of("closed").sort == (0..9).map(&:to_s).sort }
      await_streams(0)
      expect([server.get("/").body, server.log]).to match(["ok", satisfy { |log| !log.match?(/ClientGone|replaced|Error/) }])
    end
  end

  it "ends it also where it is one of many: 200 of 200" do
    serve_streams(threads: 5)
    peers = Array.new(200) { |number| stream("/each/silent?#{number}") }
    await_streams(200)
    peers.each(&:close)
    await_streams(0)
    eventually { [server.lines_of("ended").size, server.lines_of("closed").uniq.size] == [200, 200] }
  end

  it "ends it with the next part where the app rescues the exception" do
    serve_streams(threads: 2)
    stream("/each/stubborn?one", streaming: 1).close
    await_streams(0)
    eventually { server.lines_of("closed") == ["one"] }
    expect(server.lines_of("ended")).to match([/\Aone Fastrack::ClientGone/])
  end

  it "interrupts no other stream, nor a request that came since" do
    serve_streams(threads: 2)
    others = Array.new(5) { |number| stream("/each/events?#{number}", streaming: number + 1) }
    stream("/each/silent?gone", streaming: 6).close
    await_streams(5)
    ones = nil
    await_look { ones = waiting(2) }
    go
    expect(statuses(ones)).to eq([200, 200])
    server.write("end", "")
    expect(others.map { |peer| peer.read_until(/last/) }).to all(include("last"))
  end

  it "is not one that has sent half of a request behind it" do
    serve_streams(threads: 2)
    peer = stream("/each/events?patient", streaming: 1)
    peer.write("GET / HTTP/1.1\r\nHost")
    await_look
    server.write("event.1", "")
    peer.read_until(/data: 1\n/)
  end

  it "is no client that reads late: it gets all parts, in their order" do
    serve_streams(threads: 2)
    peers = Array.new(3) { HttpPeer.new(server, receive_buffer: 8192).write("GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") }
    await_streams(3)
    await_look
    expect(server.get("/").body).to eq("ok")
    go
    bodies = peers.map { |peer| HttpResponse.parse(peer.read_to_end).body }
    expect(bodies.map { |body| [body.bytesize, body.scan(/.{8}/).map(&:to_i).uniq] }).to all(eq([40 * 100_000, (0..39).to_a]))
  end
end
