# frozen_string_literal: true

require_relative "../../lib/fastrack/listener/sockets"

RSpec.describe "Listeners", once: "sockets" do
  include Folder

  # A line of Rackups::ENV_LINES.
  def value(response, key) = response.body[/^#{Regexp.escape(key)}=(.*)$/, 1]
  def open_path(path) = Fastrack::UNIXListener.open(path, backlog: 5, output: StringIO.new)

  # A server that ends with one line, which says why.
  def expect_refusal(line, **options)
    server = Server.fail_to_start(ru: Rackups::PID, options: options)
    expect([server.log, server.status.exitstatus]).to match([/\Afastrack: cannot listen on #{line}\n\z/, 1])
  end

  describe "on a path" do
    let(:server) { Server.start(ru: Rackups::ENV_LINES, unix: true, options: { MaxWorkers: 1 }) }

    it "A7 the socket's mode is 0777, whatever the umask" do
      server = Server.start(ru: Rackups::PID, unix: true, wrapper: ["sh", "-c", 'umask 077; exec "$@"', "sh"])
      expect(format("%o", File.stat(server.path).mode & 0o7777)).to eq("777")
    end

    it "A7 a stale socket is replaced, and that is said" do
      UNIXServer.new(stale = File.join(@dir, "app.sock")).close
      server = Server.start(ru: Rackups::PID, options: { Host: nil, Port: nil, Path: stale })
      expect([server.log.lines.first, server.get.status]).to eq(["removing existing socket file:#{stale}\n", 200])
    end

    it "B-path-in-use a socket that another server listens on is left to it, with one clear line and status 1" do
      expect_refusal("#{server.path}: the path is in use", Host: nil, Port: nil, Path: server.path)
      expect(server.get.status).to eq(200)
    end

    { "an absolute path" => ->(path) { path }, "a relative one" => ->(path) { File.basename(path) } }.each do |what, name|
      it "B-path-in-use a socket that another server has bound by #{what}, and is about to listen on, is left to it" do
        path = File.join(@dir, "app.sock")
        other = Socket.new(:UNIX, :STREAM)
        Dir.chdir(@dir) { other.bind(Addrinfo.unix(name.call(path))) }
        expect { open_path(path) }.to raise_error(Fastrack::AddressInUseError)
        other.listen(1)
        UNIXSocket.new(path).close
        other.close
        # Now it is stale.
        open_path(path).close
      end
    end

    it "B-path-in-use of many servers that start beside a stale socket one gets the path, and keeps it" do
      path = File.join(@dir, "app.sock")
      5.times do
        UNIXServer.new(path).close
        results = Array.new(8) do
          Thread.new do
            open_path(path)
          rescue Fastrack::AddressInUseError
            nil
          end
        end.map(&:value)
        expect(results.compact.size).to eq(1)
        UNIXSocket.new(path).close
        results.compact.each(&:close)
        File.unlink(path)
      end
    end

    it "A7 BackLog is how many may wait to be accepted" do
      server = Server.start(ru: Rackups::PID, unix: true, options: { MaxWorkers: 1, BackLog: 3 })
      server.get
      worker, = server.await_workers(1)
      server.signal(:STOP, to: worker)
      eventually { ProcessTable.entry(worker).state == "T" }
      clients = Array.new(6) { Socket.new(:UNIX, :STREAM) }
      # Linux lets one more in than it was asked for.
      expect(clients.map { |client| knock(client, server.path) }).to eq([0, 0, 0, 0, :full, :full])
    ensure
      clients&.each(&:close)
      server.signal(:CONT, to: worker) if worker
    end

    def knock(client, path)
      client.connect_nonblock(Addrinfo.unix(path))
    rescue Errno::EAGAIN
      :full
    end
  end

  describe "in this process" do
    it "B-regular-file a folder is never removed, nor a link to nowhere" do
      link = File.join(@dir, "link")
      File.symlink(File.join(@dir, "nowhere"), link)
      expect { open_path(link) }.to raise_error(Fastrack::ListenError, /is not a socket/)
      expect { open_path(@dir) }.to raise_error(Fastrack::ListenError, /is not a socket/)
      expect(File).to be_symlink(link)
    end

    it "B-path-in-use nor is a socket whose server is too busy to accept, or that is of another type" do
      path = File.join(@dir, "app.sock")
      busy = UNIXServer.new(path)
      busy.listen(0)
      client = UNIXSocket.new(path)
      expect { open_path(path) }.to raise_error(Fastrack::ListenError, "cannot listen on #{path}: the path is in use")
      log = Socket.new(:UNIX, :DGRAM).tap { |socket| socket.bind(Addrinfo.unix("#{path}.log")) }
      expect { open_path("#{path}.log") }.to raise_error(Fastrack::ListenError, /: the path is in use\z/)
      expect([path, "#{path}.log"]).to all(satisfy { |one| File.socket?(one) })
      [client, busy, log].each(&:close)
    end

    it "A7 localhost is every address that it has, on one port" do
      listeners = Fastrack::TCPListener.open("localhost", 0, backlog: 5)
      usable = Addrinfo.getaddrinfo("localhost", nil, nil, :STREAM).map(&:ip_address).uniq
      expect(listeners.size).to be_between(1, usable.size)
      expect(listeners.map(&:to_s).uniq).to eq(["localhost:#{listeners.first.server_port}"])
      listeners.each(&:close)
    end
  end

  describe "on a port" do
    it "B-ipv6 listens on ::1, and REMOTE_ADDR is the client's" do
      server = Server.start(ru: Rackups::ENV_LINES, options: { Host: "::1" })
      expect(server.log).to match(/ on \[::1\]:\d+ Pid/)
      response = HttpResponse.ask(server.connect)
      expect([value(response, "SERVER_NAME"), value(response, "REMOTE_ADDR")]).to eq(['"[::1]"', '"::1"'])
    end

    it "B-reuseport two servers share a port, and without it they do not" do
      first = Server.start(ru: Rackups::PID, options: { ReusePort: "true", MaxWorkers: 1 })
      second = Server.start(ru: Rackups::PID, options: { ReusePort: "yes", Port: first.port, MaxWorkers: 1 })
      expect(second.port).to eq(first.port)
      expect_refusal("127.0.0.1:#{first.port}: the port is in use", Port: first.port)
    end

    { "an address of another machine" => ["192.0.2.1", 0, "no such address on this machine"],
      "a host that does not exist" => ["no-such-host.invalid", 0, /the host is unknown/] }.each do |what, (host, port, reason)|
      it "B-faults #{what} is one clear line and status 1" do
        expect_refusal("#{host}:#{port}: #{reason.is_a?(Regexp) ? reason.source : reason}.*", Host: host, Port: port)
      end
    end

    it "A7 the listeners are not handed on to programs that the app starts" do
      server = Server.start(ru: <<~'RUBY', options: { MaxWorkers: 1 })
        run ->(_env) { [200, {}, [`ls -l /proc/self/fd`]] }
      RUBY
      expect(server.get.body).to include("pipe:").and(satisfy { |text| !text.include?("socket:") })
    end
  end
end
