# frozen_string_literal: true

require "support/lone_proxy"

RSpec.describe "the proxy: kept connections to workers", once: "the program knows no Ruby" do
  # Reads until the text matches.
  def read_until(io, pattern)
    text = +""
    until text.match?(pattern)
      raise "nothing came after #{text.inspect}" unless io.wait_readable(GcMode.patient(20))

      text << io.readpartial(65_536)
    end
    text
  end

  def ask(client) = client.write(message("GET / HTTP/1.1", "Host: a"))

  # Opens a stream that does not end. Returns both of its ends.
  def open_stream(proxy)
    ask(client = proxy.connect)
    read_until(worker = proxy.worker, /\r\n\r\n/)
    worker.write(message("HTTP/1.1 200 OK", "Transfer-Encoding: chunked"), "5\r\nfirst\r\n")
    read_until(client, /first/)
    [client, worker]
  end

  def serve(client, worker)
    read_until(worker, /\r\n\r\n/)
    worker.write(message("HTTP/1.1 200 OK", "Content-Length: 5"), "hello")
    read_until(client, /hello\z/)
  end

  it "serve one request after the other, though hundreds of streams are open" do
    Dir.mktmpdir do |dir|
      LoneProxy.open(dir, threads: 1) do |proxy|
        streams = Array.new(300) { open_stream(proxy) }
        ask(client = proxy.connect)
        worker = proxy.worker
        serve(client, worker)
        5.times { ask(client) && serve(client, worker) }
        expect(proxy.asked?).to be(false)
        streams.flatten.each(&:close)
      end
    end
  end

  it "are those of streams that have ended" do
    Dir.mktmpdir do |dir|
      LoneProxy.open(dir, threads: 1) do |proxy|
        client, worker = open_stream(proxy)
        worker.write("0\r\n\r\n")
        read_until(client, /0\r\n\r\n/)
        ask(client)
        serve(client, worker)
      end
    end
  end
end
