# frozen_string_literal: true

require_relative "../../lib/fastrack/listener/address"

RSpec.describe Fastrack::Address, once: "texts and sockets" do
  include Folder

  { 8080 => ["0.0.0.0", 8080, nil], "8080" => ["0.0.0.0", 8080, nil], "*:8080" => ["0.0.0.0", 8080, nil],
    ":8080" => ["0.0.0.0", 8080, nil], "10.0.0.5:8080" => ["10.0.0.5", 8080, nil], "localhost:0" => ["localhost", 0, nil],
    "[::1]:8080" => ["[::1]", 8080, nil], "[fe80::1%lo]:1" => ["[fe80::1%lo]", 1, nil],
    "tcp://10.0.0.5:80" => ["10.0.0.5", 80, nil], "tcp://[::]:80" => ["[::]", 80, nil], "http://a.example:80/" => ["a.example", 80, nil],
    "/run/app.sock" => [nil, nil, "/run/app.sock"], "unix:/run/app.sock" => [nil, nil, "/run/app.sock"],
    "unix:///run/app.sock" => [nil, nil, "/run/app.sock"], "unix://tmp/app.sock" => [nil, nil, "tmp/app.sock"],
    "unix://app" => [nil, nil, "app"], "unix:app" => [nil, nil, "app"], "unix:////run/app" => [nil, nil, "//run/app"],
    "tmp/app.sock" => [nil, nil, "tmp/app.sock"], "app.sock" => [nil, nil, "app.sock"], "./app.sock" => [nil, nil, "./app.sock"], "~/app.sock" => [nil, nil, "~/app.sock"],
    "~app/a.sock" => [nil, nil, "~app/a.sock"], "unix:///run/app.sock?umask=0111" => [nil, nil, "/run/app.sock"],
    "/run/app.sock?a=b" => [nil, nil, "/run/app.sock?a=b"], "tcp://[::]:80?backlog=7" => ["[::]", 80, nil] }.each do |text, expected|
    it "C2 understands #{text.inspect}" do
      address = described_class.parse(text)
      expect([address.host, address.port, address.path]).to eq(expected)
    end
  end

  ["", "app", "host:http", "::1", "::1:80", "[::1]", "1.2.3.4:65536", "ftp://x:1", "unix:", "unix://", "unix://@app", "unix:@app", "a b", -1, nil, 1.5, "/a\0b"].each do |text|
    it("C2 does not understand #{text.inspect}") { expect { described_class.parse(text) }.to raise_error(ArgumentError) }
  end

  { ["unix:///a?umsk=7"] => "has no setting umsk; did you mean umask?", ["tcp://:80?backlog=many"] => /\Abacklog must be a whole number/,
    ["ssl://0.0.0.0:443?key=x"] => /\Aneeds a key for each cert/, [80, { backlock: 3 }] => "has no setting backlock; did you mean backlog?",
    [80, { backlog: "many" }] => /\Abacklog must be a whole number/, ["/a", { umask: 0o1000 }] => /\Aumask must be a file mode/ }.each do |place, message|
    it "C2 says what is wrong with #{place.join(" and ")}" do
      expect { described_class.parse(*place) }.to raise_error(ArgumentError, message)
    end
  end

  it "C2 takes Unicorn's settings that have no effect" do
    expect { described_class.parse(80, tcp_nopush: true, accept_filter: "x", "reuse_port" => nil) }.not_to raise_error
  end

  describe "opened" do
    def opened(place, settings = {})
      listeners = described_class.parse(place, settings).open
      socket = Socket.for_fd(listeners.first.fileno)
      socket.autoclose = false
      yield socket, listeners.first
    ensure
      listeners&.each(&:close)
    end

    it "A7 has SO_REUSEADDR, TCP_DEFER_ACCEPT and TCP_NODELAY, and no SO_REUSEPORT, unless it is told otherwise" do
      opened("127.0.0.1:0") do |socket|
        found = [%i[SOCKET REUSEADDR], %i[SOCKET REUSEPORT], %i[TCP NODELAY], %i[TCP DEFER_ACCEPT]].map { |names| socket.getsockopt(*names).bool }
        expect(found).to eq([true, false, true, true])
      end
    end

    it "C2 has the socket options that it was given" do
      settings = { backlog: 7, reuse_port: true, tcp_nodelay: false, tcp_defer_accept: 9, rcvbuf: 70_000, sndbuf: 80_000 }
      opened("127.0.0.1:0", settings) do |socket|
        # struct tcp_info (linux/tcp.h): the backlog is in tcpi_sacked.
        expect(socket.getsockopt(:TCP, :INFO).data.unpack("x8 L6").last).to eq(7)
        expect([socket.getsockopt(:SOCKET, :REUSEPORT).bool, socket.getsockopt(:TCP, :NODELAY).bool]).to eq([true, false])
        expect(socket.getsockopt(:TCP, :DEFER_ACCEPT).int).to be >= 9
        # Linux doubles them (socket(7)).
        expect(%i[RCVBUF SNDBUF].map { |name| socket.getsockopt(:SOCKET, name).int }).to eq([140_000, 160_000])
      end
    end

    it "C2 has the settings in its URI, as Puma has them" do
      opened("tcp://127.0.0.1:0?backlog=7&low_latency=false&reuse_port") do |socket|
        expect(socket.getsockopt(:TCP, :INFO).data.unpack("x8 L6").last).to eq(7)
        expect(%i[TCP SOCKET].zip(%i[NODELAY REUSEPORT]).map { |names| socket.getsockopt(*names).bool }).to eq([false, true])
      end
      opened("unix://#{@dir}/app.sock?umask=0111&backlog=7") do
        expect(Dir.children(@dir)).to eq(["app.sock"])
        expect(format("%o", File.stat("#{@dir}/app.sock").mode & 0o777)).to eq("666")
      end
    end

    it "C2 listens on IPv6 alone where it is told to" do
      [true, false].each do |only|
        opened("[::]:0", ipv6only: only) { |socket| expect(socket.getsockopt(:IPV6, :V6ONLY).bool).to be(only) }
      end
    end

    { { mode: 0o600 } => "600", { mode: "0660" } => "660", { umask: 0o007 } => "770", {} => "777" }.each do |settings, mode|
      it "C2 a path has mode #{mode} with #{settings}" do
        opened("#{@dir}/app.sock", settings) { expect(format("%o", File.stat("#{@dir}/app.sock").mode & 0o777)).to eq(mode) }
      end
    end
  end

  describe "where something else listens" do
    def taken = TCPServer.open("127.0.0.1", 0) { |server| yield server, "127.0.0.1:#{server.addr[1]}" }

    it "C2 is tried as often as was said, with a line in the log" do
      taken do |_, place|
        address = described_class.parse(place, tries: 3, delay: 0)
        expect(address).to receive(:open).exactly(3).times.and_call_original
        expect { expect { address.open_with_retries }.to raise_error(Fastrack::AddressInUseError) }
          .to output("fastrack: cannot listen on #{place}: the port is in use; trying again every 0.0 s\n").to_stderr
      end
    end

    it "C2 with tries: -1 is tried until it is free" do
      taken do |server, place|
        address = described_class.parse(place, tries: -1, delay: 0.01)
        allow(address).to receive(:open).and_wrap_original do |open|
          @tried = @tried.to_i + 1
          server.close if @tried == 20
          open.call
        end
        listeners = nil
        expect { listeners = address.open_with_retries }.to output(/trying again/).to_stderr
        expect([@tried, listeners.map(&:to_s)]).to eq([20, [place]])
        listeners.each(&:close)
      end
    end

    it "C2 is not tried again where it could never be listened on" do
      address = described_class.parse("/no/such/folder/app.sock", tries: -1)
      expect { address.open_with_retries }.to raise_error(Fastrack::ListenError, /no such file or directory/)
    end
  end
end
