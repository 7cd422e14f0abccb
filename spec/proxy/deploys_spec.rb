# frozen_string_literal: true

require_relative "../../bench/support/deploys/clients"
require_relative "../../bench/support/deploys/lasting"
require "support/client_loop"
require "support/free_port"
require "support/streams_app"

RSpec.describe "the proxy: deploys", once: "the program knows no Ruby" do
  include StreamsApp

  # A server with a proxy, one worker and two threads.
  def start(config = "", **options)
    options = { MaxWorkers: 1, MaxThreads: 2, MaxRequestPerChild: 0, Pid: "app.pid", **options }
    @server = Server.ready(ru: StreamsApp::RU, fastrack: true, config: "compress true\n#{config}", options: options)
    @monitor = MonitorClient.new(server.file("app.control"))
    @proxy = Edge.proxy(server)
  end

  def worker = (server.workers - server.molds - [Edge.proxy(server)]).last

  # A client with an event stream, and one with a socket, and the pid of the worker that has them.
  def clients
    peer, one = stream("/each/events?long"), socket
    [peer, one, echo(one, "first")]
  end

  def expect_to_go_on(peer, one, old, name)
    server.write("event.#{name}", "")
    peer.read_until(/data: #{name}\n/)
    expect(echo(one, "still #{name}")).to eq(old)
  end

  def expect_ended(*peers)
    peers.each(&:read_to_end)
    expect(peers.map(&:ending)).to all(eq(:closed))
    expect(server.log).not_to match(/kill/)
  end

  def replace_master(times)
    server.signal(:USR2, to: server.master)
    server.await_log("the old master has ended", times)
  end

  it "USR2: streams and sockets go on, and the old server ends with them" do
    start(GracefulTimeout: 600)
    peer, one, old = clients
    old_master, old_proxy = server.master, @proxy
    server.signal(:USR2)
    eventually(40) { server.get("/pid").body.to_i != old }
    expect_to_go_on(peer, one, old, 1)
    expect([old_master, old_proxy].map { |pid| ProcessTable.alive?(pid) }).to eq([true, true])
    server.write("end", "")
    expect(peer.read_until(/last/)).to include("data: last")
    one.close
    eventually(20, -> { server.log }) { [old, old_master, old_proxy].none? { |pid| ProcessTable.alive?(pid) } }
    expect_ended(peer)
  end

  it "USR2: streams and sockets end in order after Linger" do
    start(Linger: 2, GracefulTimeout: 30)
    peers = [*Array.new(3) { stream("/each/silent?one") }, *Array.new(3) { socket }]
    server.signal(:USR2)
    peers.first(3).each { |peer| peer.read_until(/\r\n0\r\n\r\n\z/) }
    peers.drop(3).each(&:read_to_end)
    peers.each(&:close)
    expect_ended(*peers.drop(3))
    eventually(20) { !ProcessTable.alive?(@proxy) }
    expect(server.log).to include("ends its streams and sockets")
  end

  it "HUP with another address: streams and sockets go on, by the same proxy" do
    FreePort.keep do |port|
      start("bind 'tcp://127.0.0.1:0'\n", Host: nil, Port: nil)
      peer, one, old = clients
      server.reload("compress true\nbind 'tcp://127.0.0.1:0'\nbind 'tcp://127.0.0.1:#{port}'\n")
      server.await_log("(pid #{old}) lingers")
      expect_to_go_on(peer, one, old, 1)
      expect(Edge.proxy(server)).to eq(@proxy)
      server.write("end", "")
      peer.read_until(/last/)
      [peer, one].each(&:close)
      eventually(20) { !server.workers.include?(old) }
    end
  end

  it "HUP that replaces the proxy: its streams and sockets go on, and the status tells them" do
    start("proxy_threads 1\n", Linger: 600)
    peer, one, old = clients
    server.reload("compress true\nproxy_threads 2\n")
    eventually(40, -> { server.log }) { monitor.status.dig("proxy", "lingering") == [{ "pid" => @proxy, "streams" => 1, "tunnels" => 1 }] }
    expect_to_go_on(peer, one, old, 1)
    server.await_log("the proxy (pid #{@proxy}) lingers for 1 stream and 1 socket")
    server.write("end", "")
    peer.read_until(/last/)
    [peer, one].each(&:close)
    eventually(20) { !ProcessTable.alive?(@proxy) }
    eventually { !monitor.status["proxy"].key?("lingering") }
  end

  it "TERM ends streams in order, and sockets at once and without a reset" do
    start(GracefulTimeout: 8)
    peer, one = stream("/each/silent?one"), socket
    server.signal(:TERM)
    one.read_to_end
    peer.read_until(/\r\n0\r\n\r\n\z/)
    expect(server.wait.exitstatus).to eq(0)
    expect_ended(peer, one)
  end

  it "QUIT keeps sockets for most of GracefulTimeout, and then ends them" do
    start(GracefulTimeout: 8)
    one = socket
    server.signal(:QUIT)
    eventually { server.refused? }
    echo(one, "there")
    one.read_to_end
    expect(server.wait.exitstatus).to eq(0)
    expect_ended(one)
  end

  it "TERM waits for requests, and not for half a TLS hello" do
    @server = Edge.start(config: "graceful_timeout 600\n")
    half = server.connect
    half.write("\x16\x03\x01".b)
    idle = Edge.connect(server)
    Edge.ask(idle)
    expect(server.stop).to be_success
  end

  it "USR2 closes no kept client unannounced" do
    start(GracefulTimeout: 60)
    loop = ClientLoop.kept(server, clients: 8) do
      3.times { |time| replace_master(time + 1) }
    end
    expect([loop.failures, loop.renewals]).to match([[], be >= 8])
  end

  # The whole of it is bench/deploys.
  it "USR2 loses no request of wrk, h2load, curl, Python's http.client and Net::HTTP" do
    missing = %w[wrk h2load curl python3].reject { |name| ENV.fetch("PATH").split(":").any? { |dir| File.executable?(File.join(dir, name)) } }
    skip "no #{missing.join(", ")}" if missing.any?
    start("h2c true\n", GracefulTimeout: 60)
    clients = Deploys::Clients.new(server.port, 3600).run
    3.times { |time| replace_master(time + 1) }
    counts = clients.stop.counts
    expect(counts.size).to eq(6)
    expect(counts.values).to all(match([be_positive, 0])), counts.inspect
  end

  it "30 event streams and 10 sockets end in order after Linger, over USR2s" do
    start(Linger: 1, GracefulTimeout: 60)
    2.times do |time|
      clients = Deploys::Lasting.new(server.port, 30, 10, streams_at: "/each/silent?one", sockets_at: "/socket/one")
      server.signal(:USR2, to: server.master)
      expect(clients.await_ends.first(2)).to eq([40, 0])
      server.await_log("the old master has ended", time + 1)
    end
  end
end
