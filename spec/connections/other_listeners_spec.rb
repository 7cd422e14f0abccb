# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/free_port"

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

  def config(places)
    "worker_processes 1\n#{places.map { |place| "listen #{place.inspect}\n" }.join}"
  end

  def start(app, places)
    @server = Server.start(ru: app, options: { Host: nil, Port: nil, MaxRequestPerChild: 0 }, config: config(places))
    await_ready(1)
  end

  def await_ready(times)
    eventually(20, -> { @server.log }) { @server.log.scan("Fastrack is ready").size >= times }
  end

  def ask(socket)
    socket.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    bytes = +""
    bytes << socket.readpartial(65_536) until bytes =~ /\r\n\r\n/ && $~.post_match.bytesize >= bytes[/^content-length: (\d+)/i, 1].to_i
    HttpResponse.parse(bytes)
  end

  # A worker, and what the app is told.
  def asked(socket)
    ask(socket).body.split(" ", 2)
  end

  # Changes the addresses, and waits until nobody of before is left.
  def change(signal, places)
    before = @server.workers
    @server.write("fastrack.rb", config(places))
    @server.signal(signal)
    await_ready(2)
    eventually(20, -> { @server.log }) { before.none? { |pid| ProcessTable.alive?(pid) } }
  end

  %i[HUP USR2].each do |signal|
    it "keeps the name and the port of its own, whichever are removed and added by #{signal}" do
      FreePort.keep(4) do |port|
        gone, *stay, fresh = Array.new(4) { |index| "127.0.0.1:#{port + index}" }
        start(app, [gone, *stay, "./app.sock"])
        sockets = [*Array.new(3) { |index| TCPSocket.new("127.0.0.1", port + index) }, UNIXSocket.new(File.join(@server.dir, "app.sock"))]
        workers, before = sockets.map { |socket| asked(socket) }.transpose
        expect(before.map { |line| line.split[1] }).to eq([*Array.new(3) { |index| (port + index).to_s }, "80"])
        expect(before.map { |line| line.split.last }).to eq(%w[true true true false])

        change(signal, ["./app.sock", *stay.reverse, fresh])
        after_workers, after = sockets.map { |socket| asked(socket) }.transpose
        expect(after).to eq(before)
        expect(workers & after_workers).to eq([])
      ensure
        sockets&.each(&:close)
      end
    end
  end
end
