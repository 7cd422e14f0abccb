# frozen_string_literal: true

require "support/lone_proxy"

RSpec.describe "the proxy: places for clients", once: "the program knows no Ruby" do
  around { |example| Dir.mktmpdir { |dir| (@dir = dir) && example.run } }

  it "a tunnel has its client's place until it ends, and is told as open" do
    LoneProxy.open(@dir, threads: 1, max_connections: 2) do |proxy|
      tunnels = Array.new(2) { proxy.tunnel }
      proxy.await_stats { |stats| stats.values_at("open", "connections") == [2, 2] }
      third = proxy.connect
      third.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
      # A proxy that gives the places of tunnels away has a client more before this one's bytes come back.
      client, worker = tunnels.first
      client.write("hello") && worker.write(worker.readpartial(5)) && client.readpartial(5)
      expect(proxy.asked?).to be(false)
      [client, worker].each(&:close)
      expect(proxy.worker.gets).to start_with("GET / ")
      proxy.await_stats { |stats| stats.values_at("open", "connections") == [2, 3] }
      [third, *tunnels.last].each(&:close)
    end
  end

  it "no place that becomes free after the stop is given to a client who waits" do
    LoneProxy.open(@dir, threads: 1, max_connections: 1) do |proxy|
      client, worker = proxy.ask
      worker.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n")
      client.gets("\n\r\n")
      waiting = Array.new(4) { proxy.connect }
      proxy.order_end(idle: 0)
      proxy.await_line("lingering")
      worker.write("0\r\n\r\n")
      client.close
      expect(proxy.await_end).to be_success
      expect(Array.new(4) { proxy.unaccepted }).to all(be_a(TCPSocket))
      waiting.each(&:close)
    end
  end
end
