# frozen_string_literal: true

require "support/http2_frames"
require "support/lone_proxy"

RSpec.describe "the proxy: memory for responses that clients do not take", once: "the program knows no Ruby", alone: "memory of a process" do
  around do |example|
    Dir.mktmpdir { |dir| LoneProxy.open(dir, compress: true) { |proxy| (@proxy = proxy) && example.run } }
  end

  # KB
  def resident = File.read("/proc/#{@proxy.pid}/status")[/^VmRSS:\s+(\d+)/, 1].to_i

  RESPONSE = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n#{Array.new(100_000) { |index| (97 + ((index * index) % 26)).chr }.join}\r\n".freeze

  # A client with so many streams whose heads have come, and whose bodies have room for a few bytes each.
  def stall(number, coding, window: 1)
    http2 = HTTP2Frames.new(client = @proxy.connect, { HTTP2Frames::INITIAL_WINDOW_SIZE => window })
    fields = { ":method" => "GET", ":scheme" => "http", ":authority" => "a", ":path" => "/", "accept-encoding" => coding }
    number.times { |index| http2.headers((2 * index) + 1, fields, flags: HTTP2Frames::END_HEADERS | HTTP2Frames::END_STREAM) }
    workers = Array.new(number) do
      @proxy.worker.tap do |worker|
        worker.gets("\r\n\r\n")
        worker.write_nonblock(RESPONSE)
      end
    end
    number.times { http2.read(HTTP2Frames::HEADERS) }
    [client, *workers]
  end

  # hyper's client and h2 would hold 75 KB for each.
  it "is little for hundreds of streams" do
    stall(1, "identity").each(&:close)
    idle = resident
    clients = Array.new(4) { stall(120, "identity") }
    expect(resident - idle).to be < 20_000
    clients.flatten.each(&:close)
  end

  it "is bounded for clients that have taken a first part, too" do
    stall(1, "identity").each(&:close)
    idle = resident
    clients = Array.new(4) { stall(120, "identity", window: 9_000) }
    expect(resident - idle).to be < 32_000
    clients.flatten.each(&:close)
  end

  %w[zstd br gzip].each do |coding|
    it "is little, though hundreds of streams are to be compressed, and goes back to the system: #{coding}" do
      stall(1, coding).each(&:close)
      idle = resident
      clients = Array.new(4) { stall(120, coding) }
      expect(resident - idle).to be < 60_000
      clients.flatten.each(&:close)
      eventually(30, -> { "#{idle} KB idle, then #{resident} KB" }) { resident < idle * 1.5 }
    end
  end
end
