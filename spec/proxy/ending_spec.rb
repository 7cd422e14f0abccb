# frozen_string_literal: true

require "support/http2_frames"
require "support/lone_proxy"
require "zlib"

RSpec.describe "the proxy: its end", once: "the program knows no Ruby" do
  around { |example| Dir.mktmpdir { |dir| (@dir = dir) && example.run } }

  def lone(**settings, &block) = LoneProxy.open(@dir, threads: 1, **settings, &block)

  # A worker's answer.
  def answer(worker) = worker.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

  # Reads one response, and returns its head.
  def read_answer(client)
    client.gets("\r\n\r\n").tap { |head| expect(client.read(2)).to eq("ok"), head }
  end

  # A client that has been served, and the worker's connection.
  def kept(proxy)
    client, worker = proxy.ask
    answer(worker)
    expect(read_answer(client)).not_to match(/^connection: close/i)
    [client, worker]
  end

  def ask_again(client, worker)
    client.write("GET /again HTTP/1.1\r\nHost: a\r\n\r\n")
    worker.gets("\r\n\r\n")
    answer(worker)
    read_answer(client)
  end

  # Whatever still comes, up to an orderly end. A reset raises.
  def rest(client) = client.wait_readable(GcMode.patient(20)) && client.read

  # The order has been obeyed.
  def await_stop(client, worker)
    eventually(20, "no response says that the connection ends") { ask_again(client, worker).match?(/^connection: close\r$/i) }
  end

  it "a kept client is told with its next response that the connection ends, which then does" do
    lone do |proxy|
      client, worker = kept(proxy)
      proxy.order_end(idle: 600)
      await_stop(client, worker)
      expect([rest(client), client.close]).to eq(["", nil])
      expect(proxy.await_end).to be_success
    end
  end

  it "a client that has connected before, and asks after, is served" do
    lone do |proxy|
      client, worker = kept(proxy)
      fresh = proxy.connect
      proxy.await_stats { |stats| stats["open"] == 2 }
      proxy.order_end(idle: 600)
      await_stop(client, worker)
      fresh.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
      # The connection to the worker is kept.
      worker.gets("\r\n\r\n")
      answer(worker)
      expect([read_answer(fresh), rest(fresh)]).to match([/^connection: close\r$/i, ""])
      [fresh, client].each(&:close)
      expect(proxy.await_end).to be_success
    end
  end

  it "idle clients are closed when their time is over, in order" do
    lone do |proxy|
      client, = kept(proxy)
      proxy.order_end
      expect(rest(client)).to eq("")
      client.close
      expect(proxy.await_end).to be_success
    end
  end

  it "what a client sends beside the end of its connection does not reset the connection" do
    lone do |proxy|
      client, worker = proxy.ask
      other, other_worker = kept(proxy)
      proxy.order_end(idle: 600)
      await_stop(other, other_worker)
      large = "x" * 100_000
      worker.write("HTTP/1.1 200 OK\r\nContent-Length: #{large.size}\r\nConnection: close\r\n\r\n#{large}")
      expect(client.gets("\r\n\r\n")).to match(/^connection: close\r$/i)
      client.write("GET /more HTTP/1.1\r\nHost: a\r\n\r\n" * 100)
      expect(rest(client)).to eq(large)
    end
  end

  describe "an HTTP/2 client" do
    def get(http2, stream)
      http2.headers(stream, { ":method" => "GET", ":scheme" => "http", ":authority" => "a", ":path" => "/" }, flags: HTTP2Frames::END_HEADERS | HTTP2Frames::END_STREAM)
    end

    # The last stream that a GOAWAY names.
    def last_stream(http2) = http2.read(HTTP2Frames::GOAWAY).payload.unpack1("N") & 0x7fff_ffff

    # One that has been served.
    def used(proxy)
      http2 = HTTP2Frames.new(client = proxy.connect)
      get(http2, 1)
      worker = proxy.worker
      worker.gets("\r\n\r\n")
      answer(worker)
      http2.read(HTTP2Frames::DATA)
      [http2, client, worker]
    end

    it "gets GOAWAY twice, and requests between the two are served" do
      lone do |proxy|
        http2, client, worker = used(proxy)
        proxy.order_end(idle: 600)
        expect(last_stream(http2)).to eq(0x7fff_ffff)
        ping = http2.read(HTTP2Frames::PING).payload
        get(http2, 3)
        worker.gets("\r\n\r\n")
        http2.answer_ping(ping)
        expect(last_stream(http2)).to eq(3)
        answer(worker)
        expect(http2.read(HTTP2Frames::HEADERS).payload.getbyte(0)).to eq(HTTP2Frames::STATUS_200)
        http2.read(HTTP2Frames::DATA)
        client.close
        expect(proxy.await_end).to be_success
      end
    end

    it "does not keep the process if it does not answer PING" do
      lone do |proxy|
        used(proxy)
        proxy.order_end
        expect(proxy.await_end).to be_success
      end
    end
  end

  it "a request that lasts keeps the process, and an earlier order's times do not count after a later one" do
    lone do |proxy|
      client, worker = proxy.ask
      other, other_worker = kept(proxy)
      proxy.order_end(idle: 600)
      await_stop(other, other_worker)
      proxy.order_end
      expect(proxy.ended?).to be_nil
      answer(worker)
      expect([read_answer(client), rest(client)]).to match([/^connection: close\r$/i, ""])
      expect(proxy.await_end).to be_success
    end
  end

  it "at its time everything is cut" do
    lone do |proxy|
      client, = proxy.ask
      proxy.order_end(cut: 0.5)
      expect(proxy.await_end).to be_success
      expect(client.read).to eq("")
    end
  end

  describe "a tunnel" do
    def echo(client, worker, text)
      client.write(text)
      expect(worker.readpartial(text.size)).to eq(text)
      worker.write(text.upcase)
      expect(client.readpartial(text.size)).to eq(text.upcase)
    end

    it "goes on, and ends in order once it has lingered: the app reads the end, and its last words arrive" do
      lone do |proxy|
        client, worker = proxy.tunnel
        other, other_worker = kept(proxy)
        proxy.order_end(idle: 600)
        await_stop(other, other_worker)
        echo(client, worker, "still")
        proxy.order_end(idle: 0, linger: 0)
        expect(worker.read).to eq("")
        worker.write("goodbye")
        worker.close
        expect(rest(client)).to eq("goodbye")
        client.close
        expect(proxy.await_end).to be_success
      end
    end

    it "ends after earlier ones, with pauses" do
      lone do |proxy|
        tunnels = Array.new(3) { proxy.tunnel }
        proxy.order_end(linger: 0, spread: 600)
        expect(tunnels.first.last.read).to eq("")
        tunnels.drop(1).each { |client, worker| echo(client, worker, "there") }
        proxy.order_end(linger: 0, spread: 1)
        expect(tunnels.drop(1).map { |_, worker| worker.read }).to eq(["", ""])
      end
    end

    it "ends in order, too, where nobody waits for it" do
      lone do |proxy|
        client, worker = proxy.tunnel
        proxy.order_end(tunnels: false)
        expect([worker.read, worker.close, rest(client), client.close]).to eq(["", nil, "", nil])
        expect(proxy.await_end).to be_success
      end
    end

    it "whose client does not close does not keep the process where nobody waits for it" do
      lone do |proxy|
        proxy.tunnel
        proxy.order_end(tunnels: false)
        expect(proxy.await_end).to be_success
      end
    end

    it "is told, with the streams" do
      lone do |proxy|
        proxy.tunnel
        proxy.await_stats { |stats| stats.values_at("streams", "tunnels", "open") == [0, 1, 1] }
        proxy.order_end
        expect(proxy.await_line("lingering")).to eq("0 1")
      end
    end
  end

  describe "a stream" do
    def begin_stream(worker, type, part)
      worker.write("HTTP/1.1 200 OK\r\nContent-Type: #{type}\r\nTransfer-Encoding: chunked\r\n\r\n")
      send_part(worker, part)
    end

    def send_part(worker, part) = worker.write("#{part.bytesize.to_s(16)}\r\n#{part}\r\n")

    # A client that has the first event of a stream.
    def stream(proxy, *lines)
      client, worker = proxy.ask(*lines)
      begin_stream(worker, "text/event-stream", "data: 1\n\n")
      [client, worker]
    end

    it "of events goes on, and ends in order once it has lingered" do
      lone do |proxy|
        client, worker = stream(proxy)
        client.gets("data: 1\n\n")
        proxy.order_end(idle: 0)
        expect(proxy.await_line("lingering")).to eq("1 0")
        send_part(worker, "data: 2\n\n")
        expect(client.gets("data: 2\n\n")).to end_with("data: 2\n\n")
        proxy.order_end(linger: 0)
        expect(rest(client)).to end_with("\r\n0\r\n\r\n")
        client.close
        expect(proxy.await_end).to be_success
      end
    end

    it "of events ends after the present event" do
      lone do |proxy|
        client, worker = stream(proxy)
        client.gets("data: 1\n\n")
        send_part(worker, "data: 2\n")
        client.gets("data: 2\n\r\n")
        proxy.order_end(linger: 0)
        expect(client.wait_readable(0.3)).to be_nil
        send_part(worker, "\n")
        expect(rest(client)).to end_with("\n\r\n0\r\n\r\n")
      end
    end

    it "of events that is compressed can be read to its end" do
      lone(compress: true) do |proxy|
        client, = stream(proxy, "Accept-Encoding: gzip")
        head = client.gets("\r\n\r\n")
        proxy.await_stats { |stats| stats["streams"] == 1 }
        proxy.order_end(linger: 0)
        expect(Zlib.gunzip(HttpResponse.parse(head + rest(client)).body)).to eq("data: 1\n\n")
      end
    end

    it "of another kind is recognizably cut" do
      lone do |proxy|
        client, worker = proxy.ask
        begin_stream(worker, "text/csv", "1,2\n")
        client.gets("1,2\n")
        proxy.order_end(linger: 0)
        expect { rest(client) }.to raise_error(Errno::ECONNRESET)
      end
    end
  end
end
