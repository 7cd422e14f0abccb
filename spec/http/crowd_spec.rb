# frozen_string_literal: true

RSpec.describe "a worker that clients queue up for", once: "the order of sockets" do
  include HttpGates

  [0, 1].each do |busy|
    it "A8 D3 serves the clients of its other listener in their turn (of two, number #{busy + 1} is busy)" do
      sockets = Array.new(2) { TCPServer.new("127.0.0.1", 0) }
      ports = sockets.map { |socket| socket.addr[1] }
      serve(HttpApps.ru(:kept), options: { "Host" => nil, "Port" => nil }, inherit: { 10 => sockets[0], 11 => sockets[1] },
                                 env: { "SERVER_STARTER_PORT" => "127.0.0.1:#{ports[0]}=10;127.0.0.1:#{ports[1]}=11" })
      sockets.each(&:close)
      place = HttpGates::Place.new(ports[busy])
      peers = worker_with_a_row(place: place) + ask(*["/busy"] * 100, place: place)
      peers += ask("/other", place: HttpGates::Place.new(ports[1 - busy]))
      # More than wait in the workers' queue.
      peers += ask(*["/busy"] * 400, place: place)
      open_gate("second")
      peers.each(&:read_to_end)
      expect(calls.index("/other") - calls.index("/gate/second")).to be < 150
    end
  end

  it "B-orphans serves those who have come when the master is killed, and ends" do
    serve(HttpApps.ru(:kept))
    worker_with_a_row
    ask(*["/more"] * 300)
    server.signal(:KILL)
    server.wait
    open_gate("second")
    eventually { !ProcessTable.alive?(@worker) }
    expect(calls.count("/more")).to eq(300)
  end

  it "B-idle-cpu uses no CPU when it stops and one of them has sent half a request", alone: "CPU seconds" do
    serve(HttpApps.ru(:kept))
    half = half_ask("/half")
    peers = worker_with_a_row
    waiting = ask(*["/more"] * 10)
    server.signal(:TERM, to: @worker)
    open_gate("second")
    peers.each { |peer| expect(HttpResponse.parse(peer.read_to_end).status).to eq(200) }
    expect([ProcessTable.cpu_seconds_within(0.5, @worker), half.anything_within?(0)]).to match([be < 0.1, false])
    half.write("Connection: close\r\n\r\n")
    expect(HttpResponse.parse(half.read_to_end).body).to eq(@worker.to_s)
    expect(waiting.map { |peer| HttpResponse.parse(peer.read_to_end).status }).to all(eq(200))
    eventually { !ProcessTable.alive?(@worker) }
  end
end
