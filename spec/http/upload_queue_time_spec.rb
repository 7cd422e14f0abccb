# frozen_string_literal: true

require "support/http_nginx"

# A slow upload is no queue: the app could not have begun. So MaxQueueTime refuses none on an idle server.
RSpec.describe "the queue time of a slow upload", once: "measured without Ruby" do
  # How long the uploads take, in seconds, and the most that a request may wait in the queue.
  let(:upload) { limit * 1.6 }
  let(:limit) { GcMode.patient(0.4) }

  let(:ru) { <<~'RUBY' }
    run lambda { |env|
      now = Process.clock_gettime(Process::CLOCK_REALTIME)
      env["rack.input"].read if env["REQUEST_METHOD"] == "POST"
      text = [env["fastrack.queue_time"], env["puma.request_body_wait"].inspect, env["HTTP_X_REQUEST_START"].inspect, now].join(" ")
      [200, { "content-type" => "text/plain" }, ["told #{text}."]]
    }
  RUBY

  def options(**more) = { MaxWorkers: 1, MaxQueueTime: limit, **more }
  def now = Process.clock_gettime(Process::CLOCK_REALTIME)

  # The head, a wait in which the server is idle, and the body in two parts.
  def slowly(io, *fields, half: upload / 2, body: "hello")
    io.write(["POST / HTTP/1.1", "Host: h", *fields, "Content-Length: #{body.bytesize}", "", ""].join("\r\n"))
    # The time that the upload takes is the subject of the example.
    sleep half
    io.write(body[0, 2])
    sleep half
    io.write(body[2..])
  end

  # @return [Array] status, queue time and wait for the body in seconds, X-Request-Start, the app's clock
  def told(text)
    queue, wait, start, clock = text[/told (.*)\./, 1].to_s.split
    raise "no answer from the app: #{text.inspect}" unless clock

    [text[%r{\AHTTP/1\.1 (\d+)}, 1].to_i, queue.to_f, wait == "nil" ? nil : wait.to_f / 1000, start == "nil" ? nil : start.delete('"'), clock.to_f]
  end

  def read_answer(io)
    text = +""
    until text.match?(/told .*\./) || text.match?(%r{\AHTTP/1.1 [45]})
      raise "nothing came after #{text.inspect}" unless io.wait_readable(GcMode.patient(30))

      text << io.readpartial(4096)
    end
    text
  end

  def post(io, *fields)
    slowly(io, *fields)
    told(read_answer(io))
  end

  def expect_upload((status, queue, wait, *))
    expect([status, queue < upload / 4]).to eq([200, true]), "status #{status}, queue time #{queue}"
    expect(wait).to be_between(upload * 0.75, upload + GcMode.patient(5))
  end

  it "is not the time of the upload, on a new connection and on a kept one" do
    server = Server.start(ru: ru, options: options)
    server.connect do |io|
      2.times { expect_upload(post(io)) }
      io.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
      expect(told(read_answer(io))).to match([200, be < limit, nil, nil, Float])
    end
  end

  { "of the head" => 0, "that is behind by less than the limit" => 0.2, "that is ahead" => -3600 }.each do |kind, ago|
    it "is not the time of the upload by a router's clock #{kind}" do
      server = Server.start(ru: ru, options: options)
      server.connect { |io| expect_upload(post(io, "X-Request-Start: t=#{now - (ago.positive? ? limit * ago : ago)}")) }
    end
  end

  it "counts the time before the head, by a router's clock" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1 })
    server.connect do |io|
      _, queue, wait, = post(io, "X-Request-Start: t=#{now - 7}")
      # A router's clock has microseconds, the time of the head has a tick of the kernel.
      expect([queue, wait]).to match([be_between(6.9, 7 + (upload / 2)), be_between(upload * 0.75, upload + GcMode.patient(5))])
    end
    server = Server.start(ru: ru, options: options)
    server.connect do |io|
      slowly(io, "X-Request-Start: t=#{now - (limit * 2)}")
      expect(read_answer(io)).to start_with("HTTP/1.1 503")
    end
  end

  it "counts the time after the body, while the worker has another request" do
    server = Server.start(ru: Rackups::GATE.sub("[Process.pid.to_s]", '[env.values_at("fastrack.queue_time", "puma.request_body_wait").join(" ")]'),
                          options: { MaxWorkers: 1 })
    held = upload
    HttpPeer.open(server) do |peer|
      begun = now
      peer.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\n")
      Eventually.eventually { peer.taken? }
      sleep upload
      holding = SlowRequest.new(server)
      peer.write("hello")
      # How long the client took, however busy the machine is.
      took = now - begun
      # The time that the request waits is the subject of the example.
      sleep held
      holding.finish
      queue, wait = peer.read_to_end[/\r\n\r\n(.*)\z/m, 1].split.map(&:to_f)
      expect([queue, wait / 1000]).to match([be_between(held * 0.75, held + GcMode.patient(5)), be_between(upload * 0.75, took + (held / 2))])
    end
  end

  it "is not the time of the upload with Expect: 100-continue, and with chunks" do
    server = Server.start(ru: ru, options: options)
    server.connect do |io|
      io.write("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
      expect(io.gets).to start_with("HTTP/1.1 100")
      io.gets
      sleep upload
      io.write("5\r\nhello\r\n0\r\n\r\n")
      expect_upload(told(read_answer(io)))
    end
  end

  it "is not that of the upload before it, for a pipelined request" do
    server = Server.start(ru: ru, options: options)
    server.connect do |io|
      io.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n")
      sleep upload
      io.write("helloGET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
      first, second = io.read.split(/(?=HTTP)/)
      expect_upload(told(first))
      expect(told(second)).to match([200, be < upload / 4, nil, nil, Float])
    end
  end

  it "has no wait for a body that the app reads itself" do
    server = Server.start(ru: ru, options: options(StreamBody: true))
    server.connect do |io|
      status, queue, wait, = post(io, "X-Request-Start: t=#{now}")
      expect([status, wait]).to eq([200, 0.0])
      expect(queue).to be < limit
    end
  end

  { "buffers" => "on", "does not buffer" => "off" }.each do |kind, buffering|
    it "is not the time of the upload behind an nginx that #{kind}" do
      server = Server.start(ru: ru, options: options, unix: true)
      settings = "proxy_request_buffering #{buffering}; proxy_http_version 1.1; proxy_set_header X-Request-Start \"t=${msec}\";"
      nginx = HttpNginx.new("unix:#{server.path}", settings: settings)
      nginx.connect do |io|
        status, queue, wait, = post(io)
        expect([status, queue < upload / 4]).to eq([200, true]), "status #{status}, queue time #{queue}"
        expect(wait).to(buffering == "off" ? be >= upload * 0.75 : be < upload / 4)
      end
    ensure
      nginx&.stop
    end
  end

  it "is not the time of the upload behind the server's own proxy, by HTTP/1.1 and HTTP/2" do
    server = Server.start(ru: ru, options: options(H2C: true))
    server.connect { |io| expect_upload(post(io)) }
    # curl sends a part of its standard input at a time.
    curl = ["curl", "-sS", "-i", "--http2-prior-knowledge", "-H", "Expect:", "-T", "-", "-X", "POST", server.url]
    text = IO.popen(curl, "r+") do |io|
      io.write("he")
      sleep upload
      io.write("llo")
      io.close_write
      io.read
    end
    expect_upload(told(text.sub("HTTP/2", "HTTP/1.1")))
  end

  describe "with RequestStart" do
    it "is told to autoscalers by X-Request-Start, where no router has set one" do
      server = Server.start(ru: ru, options: { MaxWorkers: 1, RequestStart: true })
      began = now
      server.connect do |io|
        _, queue, wait, start, clock = post(io)
        # Judoscale's and Sentry's sum: the time since the start, less the wait for the body.
        seconds = start[/\At=(\d+\.\d{6})\z/, 1].to_f
        expect(clock - seconds - wait).to be_within(GcMode.patient(0.2)).of(queue)
        expect(seconds).to be_between(began - 0.2, began + GcMode.patient(1))
        expect(post(io, "X-Request-Start: t=1512379167.574")[3]).to eq("t=1512379167.574")
      end
    end
  end

  it "sets no X-Request-Start by itself for an app that is not Rails" do
    server = Server.start(ru: ru, options: { MaxWorkers: 1 })
    expect(told(server.get("/").body.prepend("HTTP/1.1 200"))[3]).to be_nil
  end
end
