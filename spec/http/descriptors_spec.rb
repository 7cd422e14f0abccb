# frozen_string_literal: true

RSpec.describe "clients that send nothing more, of which there are more than the worker may have descriptors", once: "sockets of the engine" do
  most = 64

  before(:context) { serve(HttpApps.ru(:pacing), wrapper: ["sh", "-c", "ulimit -n #{most}; exec \"$@\"", "sh"]) }

  it "B-slow-head do not keep others from being served: those who have waited longest make room, and are told" do
    silent = Array.new(2 * most) { HttpPeer.new(server).write("GET /never HTTP/1.1\r\nHost: a\r\n") }
    10.times { expect(server.get("/other").body).to eq(@worker.to_s) }
    expect([HttpResponse.parse(silent.first.read_to_end).status, silent.last.anything_within?(0)]).to eq([408, false])
    silent.last.write("Connection: close\r\n\r\n")
    expect(HttpResponse.parse(silent.last.read_to_end).status).to eq(200)
  end
end

RSpec.describe "clients that are idle, kept and stalled, of which there are more than the worker may have descriptors", once: "sockets of the engine" do
  app = <<~'RUBY'
    large = "x" * 8_000_000
    run ->(env) { [200, {}, [env["PATH_INFO"] == "/large" ? large : "small"]] }
  RUBY

  def clients(server, kind, count)
    Array.new(count) do
      peer = HttpPeer.new(server, receive_buffer: 4096)
      kind == :idle ? peer : peer.write("GET #{kind == :kept ? "/small" : "/large"} HTTP/1.1\r\nHost: a\r\n\r\n")
    end
  end

  { "one thread" => {}, "three threads" => { MaxThreads: 3 } }.each do |threads, options|
    { "of each" => { idle: 85, kept: 85, stalled: 80 }, "that take nothing of their responses" => { stalled: 250 } }.each do |which, counts|
      it "do not keep others from being served by #{threads}: 250 #{which}" do
        server = Server.ready(ru: app, options: { MaxWorkers: 1, **options }, wrapper: ["sh", "-c", "ulimit -n 100; exec \"$@\"", "sh"])
        crowd = counts.flat_map { |kind, count| clients(server, kind, count) }
        expect(Array.new(60) { server.get("/small").body }).to eq(["small"] * 60)
        expect(crowd.size).to eq(250)
      end
    end
  end

  it "get the rest of their responses where they take something now and then" do
    server = Server.ready(ru: app, options: { MaxWorkers: 1 }, wrapper: ["sh", "-c", "ulimit -n 100; exec \"$@\"", "sh"])
    slow = HttpPeer.new(server, receive_buffer: 4096).write("GET /large HTTP/1.0\r\n\r\n")
    served = false
    reader = Thread.new do
      (1..).each { |part| slow.read_until_size(4_000 * part).tap { sleep 0.05 } && served && break }
      slow.read_to_end
    end
    crowd = clients(server, :stalled, 150)
    20.times { server.get("/small") }
    served = true
    expect(HttpResponse.parse(reader.value).body.bytesize).to eq(8_000_000)
    expect(crowd.size).to eq(150)
  end
end
