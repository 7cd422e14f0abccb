# frozen_string_literal: true

require "support/http2_frames"
require "support/lone_proxy"

RSpec.describe "the proxy: slow clients", once: "the program knows no Ruby" do
  around do |example|
    Dir.mktmpdir do |dir|
      Folder.write(dir, "public/large", "a" * LENGTH)
      (@dir = dir) && example.run
    end
  end

  # More than the buffers of both sockets.
  LENGTH = 16_000_000

  def open(&) = LoneProxy.open(@dir, public_files: "#{@dir}/public", write_timeout: write_timeout, &)

  def write_timeout = GcMode.patient(1)

  # A client whose system takes little of what it does not read.
  def ask(proxy, *fields)
    socket = Socket.new(:INET, :STREAM)
    socket.setsockopt(:SOCKET, :RCVBUF, 16_384)
    socket.connect(Addrinfo.tcp("127.0.0.1", proxy.port))
    socket.write("#{["GET /large HTTP/1.1", "Host: a", *fields].join("\r\n")}\r\n\r\n")
    expect(socket.gets("\r\n\r\n")).to start_with("HTTP/1.1 200")
    socket
  end

  # Reads steadily, but slowly, for this time. Returns the number of bytes.
  def read_slowly(socket, seconds)
    since = Eventually.now
    read = 0
    while Eventually.now < since + seconds
      read += socket.readpartial(4096).bytesize
      sleep 0.02
    end
    read
  end

  it "a client that takes a response slowly but steadily gets the whole of it" do
    open do |proxy|
      socket = ask(proxy, "Connection: close")
      read = read_slowly(socket, write_timeout * 3)
      expect(read).to be < LENGTH / 2
      expect(read + socket.read.bytesize).to eq(LENGTH)
    end
  end

  def sockets(proxy) = ProcessTable.descriptors(proxy.pid).values.grep(/\Asocket:/).size

  it "a client that stops in the middle of a response is reset after WriteTimeout" do
    open do |proxy|
      before = sockets(proxy)
      socket = ask(proxy)
      read = read_slowly(socket, write_timeout * 1.5)
      eventually { sockets(proxy) == before }
      expect { read += socket.readpartial(LENGTH).bytesize while read < LENGTH }.to raise_error(Errno::ECONNRESET)
    end
  end

  describe "an HTTP/2 stream whose client takes nothing of the response" do
    def ask_stream(http2, number, path, verb = "GET")
      fields = { ":method" => verb, ":scheme" => "http", ":authority" => "a", ":path" => path }
      http2.headers(number, fields, flags: HTTP2Frames::END_HEADERS | HTTP2Frames::END_STREAM)
    end

    def send_event(worker, http2, number)
      worker.write("5\r\nevent\r\n")
      event = +""
      # The client's window may have cut it.
      until event.bytesize >= 5
        frame = http2.read(HTTP2Frames::DATA)
        event << frame.payload if frame.stream == number
      end
      expect(event).to eq("event")
    end

    # An event stream that the client takes.
    def open_events(proxy, http2, number)
      ask_stream(http2, number, "/events")
      http2.window_update(number, 10_000)
      worker = proxy.worker
      worker.gets("\r\n\r\n")
      worker.write(message("HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked"))
      send_event(worker, http2, number)
      worker
    end

    it "is reset alone after WriteTimeout, though the client asks for more all the time" do
      open do |proxy|
        http2 = HTTP2Frames.new(proxy.connect, { HTTP2Frames::INITIAL_WINDOW_SIZE => 1 })
        worker = open_events(proxy, http2, 1)
        ask_stream(http2, stalled = 3, "/large")
        since = Eventually.now
        answers = 5.step(by: 2).lazy.map do |number|
          raise "stream 3 lasts" if Eventually.now > since + GcMode.patient(20)

          sleep 0.1
          ask_stream(http2, number, "/large", "HEAD")
          send_event(worker, http2, 1)
          http2.resets
        end
        expect(answers.find(&:any?)).to eq([stalled])
        expect(Eventually.now - since).to be > write_timeout * 0.8
        send_event(worker, http2, 1)
      end
    end
  end
end
