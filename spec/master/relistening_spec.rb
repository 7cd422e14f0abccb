# frozen_string_literal: true

# HUP with a ConfigFile that names other addresses than before.
RSpec.describe "Listeners on HUP", once: "sockets and signals" do
  def start(*places, ru: Rackups::PID, workers: 2)
    @workers = workers
    Server.ready(ru: ru, options: { Host: nil, Port: nil, MaxRequestPerChild: 0 }, config: config(places))
  end

  def config(places) = "worker_processes #{@workers}\n#{places.map { |place| "listen #{place.inspect}\n" }.join}"

  # Changes the addresses.
  def change(server, *places) = server.reload(config(places))
  def get(port) = HttpResponse.ask(TCPSocket.new("127.0.0.1", port)).body.to_i

  def refused?(place)
    (place.is_a?(Integer) ? TCPSocket.new("127.0.0.1", place) : UNIXSocket.new(place)).close
    false
  rescue Errno::ECONNREFUSED
    true
  end

  it "opens those that are new and closes those that are gone, while clients of the others notice nothing" do
    FreePort.keep(3) do |port|
      server = start("127.0.0.1:#{port}", "127.0.0.1:#{port + 1}")
      # Who asks for the first one, which stays.
      allow(server).to receive(:port).and_return(port)
      loop = ClientLoop.run(server) do |clients|
        expect(refused?(port + 2)).to be(true)
        change(server, "127.0.0.1:#{port + 2}", "127.0.0.1:#{port}")
        server.await_ready(2)
        clients.await_answers
      end
      expect([loop.failures, server.workers]).to match([[], include(get(port), get(port + 2))])
      # An old worker may still have it.
      eventually { refused?(port + 1) }
      expect(server.log).to include("fastrack: no longer listening on 127.0.0.1:#{port + 1}\n")
      expect(server.log.scan(/^Fastrack starts Listening on 127.0.0.1:#{port + 2} Pid:#{server.pid}$/).size).to eq(1)
      expect(server.log.scan("Listening on 127.0.0.1:#{port} ").size).to eq(1)
    end
  end

  it "serves those who wait at an address that is gone, and then closes it" do
    FreePort.keep(2) do |port|
      server = start("127.0.0.1:#{port}", "127.0.0.1:#{port + 1}", ru: Rackups::GATE, workers: 1)
      old = server.workers.first
      request = SlowRequest.new(server)
      waiting = Array.new(20) { TCPSocket.new("127.0.0.1", port).tap { |socket| socket.write("GET / HTTP/1.0\r\nHost: h\r\n\r\n") } }
      change(server, "127.0.0.1:#{port + 1}")
      server.await_log("no longer listening on 127.0.0.1:#{port}\n")
      expect(request.finish.status).to eq(200)
      expect(waiting.map { |socket| HttpResponse.parse(socket.read).status }).to all(eq(200))
      eventually { !ProcessTable.alive?(old) }
      expect([refused?(port), refused?(port + 1)]).to eq([true, false])
    ensure
      waiting&.each(&:close)
    end
  end

  it "changes nothing where an address that is new is in use, and says so" do
    FreePort.keep(2) do |port|
      server = start("127.0.0.1:#{port}")
      before = server.workers
      TCPServer.open("127.0.0.1", 0) do |taken|
        place = "127.0.0.1:#{taken.addr[1]}"
        change(server, "127.0.0.1:#{port + 1}", place)
        server.await_log("fastrack: HUP changes nothing: cannot listen on #{place}: the port is in use\n")
      end
      expect([before, server.workers, refused?(port + 1)]).to match([include(get(port)), before, true])
      # Another HUP sees the difference all the same.
      change(server, "127.0.0.1:#{port}", "127.0.0.1:#{port + 1}")
      server.await_ready(2)
      expect(server.workers).to include(get(port + 1))
    end
  end

  it "knows a path and a port that the kernel has chosen" do
    server = start("127.0.0.1:0", "./one.sock")
    port = server.log[/Listening on 127.0.0.1:(\d+)/, 1].to_i
    change(server, "./two.sock", "127.0.0.1:0")
    server.await_ready(2)
    expect(server.log.scan("starts Listening").size).to eq(3)
    expect(server.log).to match(/^fastrack: no longer listening on :unix:.*one\.sock$/)
    expect(server.workers).to include(get(port))
    expect(HttpResponse.ask(UNIXSocket.new(server.file("two.sock"))).status).to eq(200)
    eventually { refused?(server.file("one.sock")) }
  end
end
