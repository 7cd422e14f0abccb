# frozen_string_literal: true

# A kept connection belongs to the address that its client has connected to, whatever becomes of that and the others.
RSpec.describe "A kept connection, when the server's addresses change" do
  # Its env, and whether its socket sends at once. The process has other sockets, too.
  app = <<~'RUBY'
    require "socket"
    nodelay = lambda do |env|
      Dir.children("/proc/self/fd").any? do |fd|
        socket = Socket.for_fd(fd.to_i).tap { |one| one.autoclose = false }
        socket.remote_address.ip_port.to_s == env["REMOTE_PORT"] && socket.getsockopt(:TCP, :NODELAY).bool
      rescue SystemCallError, SocketError
        false
      end
    end
    run lambda { |env|
      names = %w[SERVER_NAME SERVER_PORT REMOTE_ADDR REMOTE_PORT].map { |name| env[name] }
      [200, {}, [[Process.pid, *names, nodelay.(env)].join(" ")]]
    }
  RUBY

  def config(places) = "worker_processes 1\n#{places.map { |place| "listen #{place.inspect}\n" }.join}"

  # A worker, and what the app is told by a request that names no host.
  def asked(one) = one.write("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").answer.body.split(" ", 2)

  # Changes the addresses, and waits until nobody of before is left.
  #
  # @param times [Integer] that workers have become ready by then
  def change(signal, places, times = 2, master = server.pid)
    before = server.workers
    server.write("fastrack.rb", config(places))
    server.signal(signal, to: master)
    server.await_ready(times)
    eventually { before.none? { |pid| ProcessTable.alive?(pid) } }
  end

  %i[HUP USR2].each do |signal|
    it "keeps the name and the port of its own, whichever are removed and added by #{signal}" do
      FreePort.keep(4) do |port|
        gone, *stay, fresh = Array.new(4) { |index| "127.0.0.1:#{port + index}" }
        @server = Server.ready(ru: app, options: { Host: nil, Port: nil, MaxRequestPerChild: 0 }, config: config([gone, *stay, "./app.sock"]))
        peers = [*Array.new(3) { |index| -> { TCPSocket.new("127.0.0.1", port + index) } }, -> { UNIXSocket.new(server.file("app.sock")) }]
                .map { |connect| KeptPeer.new(Struct.new(:connect).new(connect.call)) }
        workers, before = peers.map { |one| asked(one) }.transpose
        expect(before.map { |line| line.split[1] }).to eq([*Array.new(3) { |index| (port + index).to_s }, "80"])
        expect(before.map { |line| line.split.last }).to eq(%w[true true true false])
        change(signal, ["./app.sock", *stay.reverse, fresh])
        after_workers, after = peers.map { |one| asked(one) }.transpose
        expect([after, workers & after_workers]).to eq([before, []])
      end
    end
  end

  it "keeps them when its own was removed by an earlier HUP, in the next master, too, and in workers of a generation 0 that is a program of its own",
     exec: "generation 0 is a program of its own" do
    FreePort.keep(3) do |port|
      first, second, stays = Array.new(3) { |index| "127.0.0.1:#{port + index}" }
      options = { Host: nil, Port: nil, MaxRequestPerChild: 0 }
      @server = Server.ready(ru: app, fastrack: true, options: options, config: config([first, second, stays, "./app.sock"]))
      peers = [*Array.new(3) { |index| TCPSocket.new("127.0.0.1", port + index) }, UNIXSocket.new(server.file("app.sock"))]
              .map { |socket| KeptPeer.new(Struct.new(:connect).new(socket)) }
      before = peers.map { |one| asked(one).last }
      expect(before.map { |line| line.split[1] }).to eq([*Array.new(3) { |index| (port + index).to_s }, "80"])
      [[:HUP, [second, stays, "./app.sock"]], [:HUP, [stays]], [:HUP, [stays, first]], [:USR2, [stays, first]], [:USR2, [stays]]]
        .each.with_index(2) do |(signal, places), times|
        change(signal, places, times, server.master)
        server.await_log("the old master has ended") if signal == :USR2
        expect(peers.map { |one| asked(one).last }).to eq(before)
      end
      expect { TCPSocket.new("127.0.0.1", port + 1) }.to raise_error(Errno::ECONNREFUSED)
    end
  end
end
