# frozen_string_literal: true

RSpec.describe "Draining", once: "signals and sockets" do
  include ReexecHelpers

  # One request on a connection that is to be kept.
  def ask_on(socket, path = "/")
    socket.write("GET #{path} HTTP/1.1\r\nHost: x\r\n\r\n")
    bytes = +""
    bytes << socket.readpartial(4096) until bytes =~ /\r\n\r\n./m
    bytes
  end

  # A client's answer says that it was the last on its connection, without `Connection: close` of the client's own.
  def await_draining(server) = eventually { server.connect { |socket| ask_on(socket) } =~ /^connection: close/i }

  it "C1 for DrainDelay seconds after a TERM everybody is served, and told that it was the last request" do
    delay = GcMode.patient(4)
    server = start(options: { DrainDelay: delay })
    kept = server.connect
    expect(ask_on(kept)).not_to match(/^connection: close/i)
    before = now
    server.signal(:TERM)
    await_draining(server)
    answers = [server.connect { |socket| ask_on(socket) }, ask_on(kept)]
    expect(answers).to all(match(/\AHTTP\/1\.1 200 .*^connection: close/im))
    expect([kept.read, server.wait.exitstatus, now - before]).to match(["", 0, be >= delay])
  end

  it "C1 a worker that is spawned meanwhile does the same" do
    server = start(options: { DrainDelay: 600, ErrRespawnInterval: 0.05 })
    workers = server.workers
    server.signal(:TERM)
    await_draining(server)
    workers.each { |pid| server.signal(:KILL, to: pid) }
    server.await_others(workers)
    await_draining(server)
    expect(server.stop(:QUIT).exitstatus).to eq(0)
  end

  it "C1 QUIT does not wait for it: the graceful stop begins at once" do
    server = start(options: { DrainDelay: 600 })
    server.signal(:TERM)
    await_draining(server)
    expect(server.stop(:QUIT).exitstatus).to eq(0)
  end

  it "C1 HUP, USR2 and the like are ignored meanwhile, and another TERM changes nothing" do
    server = start(options: { DrainDelay: delay = GcMode.patient(4) })
    before = now
    server.signal(:TERM)
    await_draining(server)
    %w[HUP USR2 TTIN WINCH TERM].each { |name| server.signal(name) }
    server.await_log(/ is ignored: the server is stopping$/, 4)
    # If each TERM were a new one, this would have no end.
    eventually { server.ended? || !server.signal(:TERM) }
    expect([server.status.exitstatus, now - before]).to match([0, be >= delay])
  end

  [false, true].each do |unix|
    it "C1 those who wait in the backlog when the server stops are served, on #{unix ? "a path" : "a port"}" do
      server = start(ru: Rackups::GATE, unix: unix, options: { MaxWorkers: 1 })
      request = SlowRequest.new(server)
      # The only worker is in the app; nobody accepts these.
      waiting = Array.new(20) { server.connect.tap { |socket| socket.write("GET / HTTP/1.0\r\n\r\n") } }
      server.signal(:TERM)
      eventually { !unix || ProcessTable.descriptors(server.pid).values.grep(/socket/).size < 10 }
      expect(request.finish.status).to eq(200)
      expect(waiting.map { |socket| HttpResponse.parse(socket.read).body.to_i }).to all(eq(request.pid))
      expect(server.wait.exitstatus).to eq(0)
    end
  end
end
