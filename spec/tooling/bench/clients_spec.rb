# frozen_string_literal: true

require "json"
require "open3"
require "tmpdir"
require_relative "../../spec_helper"
require_relative "../../support/free_port"
require_relative "../../support/tiny_server"
require_relative "../../../bench/support/bench"

RSpec.describe "the clients of bench/load", once: "a tool" do
  def answer(**fields) = TinyServer::Answer.new(**fields)

  describe Bench::ClosedLoop do
    def clients(server, connections: 2, **options)
      paths = { "/fast" => 3, "/slow" => 1 }
      described_class.new(endpoints: [server.endpoint], paths: paths, connections: connections, **options)
    end

    it "keeps its connections, and reports every request by its kind, with what the app says of it" do
      serve = lambda do |path|
        slow = path == "/slow"
        sleep(0.02) if slow
        answer(body: "x" * 20_000, headers: { "X-Service-Time" => slow ? 20_000 : 7 })
      end
      TinyServer.run(serve) do |server|
        load = clients(server).for_seconds(0.5)
        expect(server.sockets.size).to eq(2)
        expect(load[:requests]).to eq(server.paths.size)
        expect(load[:kinds].transform_values { |kind| kind[:requests] }).to eq(
          "/fast": server.paths.count("/fast"), "/slow": server.paths.count("/slow")
        )
        expect(load[:kinds].transform_values { |kind| kind[:service_mean_us] }).to eq("/fast": 7, "/slow": 20_000)
        expect(load[:kinds][:"/slow"][:p50_us]).to be_between(20_000, 1_000_000)
        expect(load[:errors].values).to all(eq(0))
        expect(load[:duration_us]).to be_between(400_000, 5_000_000)
      end
    end

    it "asks the same requests in the same order for the same seed, however the server answers" do
      runs = [[5, 0], [5, 0.003], [6, 0]].map do |seed, delay|
        TinyServer.run(->(_) { sleep(delay) && answer }) do |server|
          clients(server, connections: 1, seed: seed).for_seconds(1)
          server.paths.first(40)
        end
      end
      expect(runs.first.tally.values).to all(be > 3)
      expect(runs[1]).to eq(runs[0])
      expect(runs[2]).not_to eq(runs[0])
    end

    it "writes down how long each client paused and waited" do
      Dir.mktmpdir do |dir|
        trace = File.join(dir, "trace")
        TinyServer.run(->(_) { answer(headers: { "X-Service-Time" => "9" }) }) do |server|
          load = clients(server, pause_ms: 10.0).for_seconds(1, trace: trace)
          samples = clients(server).samples(trace)
          expect(samples.map(&:path).tally.transform_keys(&:to_sym)).to eq(
            load[:kinds].transform_values { |kind| kind[:requests] }
          )
          expect(samples.map(&:latency_us).max).to eq(load[:max_us])
          expect(samples.map(&:service_us).uniq).to eq([9])
          # Of about 200 pauses the mean has a standard deviation of 0.7 ms, and a busy machine makes them longer.
          expect(samples.sum(&:pause_us).fdiv(samples.size)).to be_between(7_000, 60_000)
        end
      end
    end

    it "has routers keep the connections, of which each has its own and no more than are in use at once" do
      { answer => 3, answer(close: true, headers: { "Connection" => "close" }) => 60 }.each do |said, connections|
        TinyServer.run(->(_) { said }) do |server|
          load = clients(server, connections: 1, routers: 3).for_requests(60)
          expect([load[:requests], load[:errors].values.sum, server.sockets.size]).to eq([60, 0, connections])
        end
      end
    end

    it "connects anew, as a part of the request, when the server closes after each" do
      TinyServer.run(->(_) { answer(close: true, headers: { "Connection" => "close" }) }) do |server|
        load = clients(server).for_seconds(0.2)
        expect(load[:errors].values).to all(eq(0))
        expect(server.sockets.size).to eq(load[:requests])
      end
    end

    it "holds it against no request that the server had closed the connection before" do
      TinyServer.run(->(_) { answer(close: true) }) do |server|
        load = clients(server, pause_ms: 5.0).for_seconds(0.3)
        expect(load[:requests]).to be > 10
        expect(load[:errors].values).to all(eq(0))
      end
    end

    it "counts what went wrong, and how" do
      kinds = { answer(status: 503) => :status, nil => :read }.map do |said, kind|
        TinyServer.run(->(_) { said }) do |server|
          load = clients(server).for_seconds(0.1)
          [kind, load[:requests], load[:errors].select { |_, count| count.positive? }.keys]
        end
      end
      expect(kinds).to eq([[:status, 0, [:status]], [:read, 0, [:read]]])
      FreePort.keep do |port|
        nobody = described_class.new(endpoints: ["127.0.0.1:#{port}"], paths: { "/" => 1 }, connections: 1)
        expect(nobody.for_seconds(0.1)[:errors]).to include(read: 0, connect: be > 0)
      end
    end
  end

  describe "#{Bench::ClosedLoop} with a request of its own" do
    # Reads a request with a body of so many bytes, in no hurry, and answers.
    def slow_reader(bytes)
      TCPServer.open("127.0.0.1", 0) do |listener|
        thread = Thread.new do
          loop do
            socket = listener.accept
            sleep(0.02)
            nil until socket.gets("\r\n") == "\r\n"
            socket.write(answer(body: socket.read(bytes).bytesize.to_s, headers: { "Connection" => "close" }).to_s)
            socket.close
          end
        end
        yield "127.0.0.1:#{listener.addr[1]}"
      ensure
        thread&.kill&.join
      end
    end

    def with_file(bytes)
      Dir.mktmpdir { |dir| yield File.join(dir, "request").tap { |path| File.binwrite(path, bytes) } }
    end

    it "sends a request that the socket does not take at once" do
      size = 8_000_000
      with_file("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: #{size}\r\n\r\n#{"x" * size}") do |file|
        slow_reader(size) do |endpoint|
          load = Bench::ClosedLoop.new(endpoints: [endpoint], connections: 1, request_files: [file]).for_requests(3)
          expect(load).to include(requests: 3, in_time: 3)
          expect(load[:errors].values).to all(eq(0))
        end
      end
    end

    it "makes exactly so many requests" do
      TinyServer.run(->(_) { answer }) do |server|
        load = Bench::ClosedLoop.new(endpoints: [server.endpoint], connections: 7).for_requests(50)
        expect([load[:requests], server.paths.size]).to eq([50, 50])
      end
    end

    it "deals its clients to several endpoints and threads" do
      with_file("GET /mine HTTP/1.1\r\nHost: x\r\n\r\n") do |file|
        TinyServer.run(->(_) { answer }) do |one|
          TinyServer.run(->(_) { answer }) do |other|
            endpoints = [one, other].map(&:endpoint)
            load = Bench::ClosedLoop.new(endpoints: endpoints, connections: 6, threads: 2, request_files: [file]).for_seconds(0.2)
            expect([one, other].map { |server| server.sockets.size }).to eq([3, 3])
            expect((one.paths + other.paths).tally).to eq("/mine" => load[:requests])
            expect(load[:clients]).to eq(6)
          end
        end
      end
    end
  end

  describe Bench::Bystanders do
    # Runs the program against a bare listener, and hands over what it says and the connections it has made.
    def against_listener(count, command, **options)
      TCPServer.open("127.0.0.1", 0) do |listener|
        described_class.run("127.0.0.1:#{listener.addr[1]}", command, **options) do |there|
          sockets = Array.new(count) { listener.accept }
          yield there, sockets
        ensure
          sockets&.each(&:close)
        end
      end
    end

    it "sends heads byte by byte, without an end" do
      against_listener(2, "trickle", senders: 2, interval_ms: 5) do |there, sockets|
        expect(there).to eq("clients" => 2)
        began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        text = +""
        text << sockets.first.readpartial(100) until text.bytesize > 60
        expect(text).to match(%r{\AGET / HTTP/1\.1\r\nHost: localhost\r\nX-Slow: a+\z})
        # However late they are read here, they were not sent any faster. The first have come by now.
        took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
        expect(took).to be > 0.005 * 40
      end
    end

    it "takes so little of an answer that the rest stays with the server" do
      against_listener(1, "trickle", readers: 1, path: "/1m", interval_ms: 5) do |_, (socket)|
        expect(socket.readpartial(1_000)).to start_with("GET /1m HTTP/1.1\r\n")
        sent = 0
        begin
          loop { sent += socket.write_nonblock("x" * 10_000) }
        rescue IO::WaitWritable
          nil
        end
        expect(sent).to be < 400_000
      end
    end

    it "comes again, and says so, when the server breaks off with a slow client" do
      TCPServer.open("127.0.0.1", 0) do |listener|
        endpoint = "127.0.0.1:#{listener.addr[1]}"
        _, said = described_class.run(endpoint, "trickle", senders: 1, interval_ms: 5) do
          4.times { listener.accept.close }
        end
        expect(said["broken"]).to be >= 3
      end
    end

    it "raises its own limit of descriptors, and holds no more connections than the hard one allows" do
      TinyServer.run(->(_) { answer }) do |server|
        program = [Bench::RustProgram.path("load"), "hold", "--address", server.endpoint, "--connections", "100"]
        output, = Open3.capture2e(*program, rlimit_nofile: [20, 80])
        there = JSON.parse(output.lines.first)
        expect(there["possible"]).to be_between(40, 79)
        expect(there["held"]).to eq(there["possible"])
      end
    end

    it "holds connections that the server keeps, and counts those that it closes" do
      answered = 0
      serve = ->(_) { answer(close: (answered += 1) > 40, headers: answered > 40 ? { "Connection" => "close" } : {}) }
      TinyServer.run(serve) do |server|
        there, said = described_class.run(server.endpoint, "hold", connections: 50, seconds: 5) do |there|
          server.sockets.reject(&:closed?).first(3).each(&:shutdown)
          there
        end
        expect(there).to include("possible" => 50, "held" => 40, "closed" => 10, "failed" => 0)
        expect(there).to include("clients" => 50, "served_every_second" => 50, "longest_gap_us" => be_between(1, 999_999))
        expect(said).to eq("still_open" => 37)
      end
    end
  end
end
