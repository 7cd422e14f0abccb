# frozen_string_literal: true

require "support/http2_frames"
require "support/lone_proxy"

RSpec.describe "the proxy: connections to workers that clients share", once: "the program knows no Ruby" do
  around do |example|
    Dir.mktmpdir do |dir|
      LoneProxy.open(dir, threads: 2, nofile: 256) do |proxy|
        accepting = Thread.new { loop { proxy.asked? ? serve(proxy.worker) : sleep(0.01) } }
        (@proxy = proxy) && example.run
      ensure
        accepting.kill.join
        workers.each(&:close)
      end
    end
  end

  # The connections of which workers have read a head.
  def workers = @workers ||= []

  # When the proxy had these requests, in seconds since 1970.
  def starts = @starts ||= []

  # A worker's answer to a GET. An upload waits.
  def serve(worker)
    Thread.new do
      while (head = worker.gets("\r\n\r\n"))
        workers << worker
        starts << head[/^x-request-start: t=(\d+)/i, 1].to_f / 1_000_000
        worker.write(message("HTTP/1.1 200 OK", "Content-Length: 5"), "hello") if head.start_with?("GET")
      end
    rescue IOError, SystemCallError
      nil
    end
  end

  # A client of HTTP/2 with so many uploads, which last.
  def upload(number)
    http2 = HTTP2Frames.new(socket = @proxy.connect)
    fields = { ":method" => "POST", ":scheme" => "http", ":authority" => "a", ":path" => "/" }
    number.times { |index| http2.headers((2 * index) + 1, fields) }
    # The proxy has read all of them.
    http2.idle
    socket
  end

  def status
    client = @proxy.connect
    client.write(message("GET / HTTP/1.1", "Host: a"))
    client.wait_readable(GcMode.patient(20)) && client.gets[/ (\d+)/, 1]
  ensure
    client.close
  end

  it "leave some for everybody, however many uploads a few clients have" do
    hogs = Array.new(8) { upload(100) }
    expect(Array.new(5) { status }).to eq(%w[200] * 5)
    expect(ProcessTable.descriptors(@proxy.pid).size).to be < 256 - 64
    hogs.each(&:close)
  end

  it "are those of clients that have left, too" do
    hogs = Array.new(8) { upload(100) }
    expect(status).to eq("200")
    hogs.each(&:close)
    workers.clear
    hog = upload(9)
    eventually { workers.size >= 9 }
    hog.close
  end

  it "are waited for in the time that autoscalers see: X-Request-Start is when the proxy had the request" do
    first = upload(9)
    eventually { workers.size == 9 }
    second = upload(30)
    eventually { workers.size >= 17 }
    had = Time.now.to_f
    starts.clear
    first.setsockopt(Socket::Option.linger(true, 0))
    first.close
    eventually { starts.any? }
    expect(starts).to all(be < had)
    second.close
  end
end
