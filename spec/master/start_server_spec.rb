# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../lib/fastrack/listener/inherited"

RSpec.describe "Under start_server", once: "sockets" do
  # Without the program itself: any process that hands sockets over is as good.
  describe "SERVER_STARTER_PORT" do
    def inherited(sockets, value)
      Server.start(ru: Rackups::ENV_LINES, options: { Host: nil, Port: nil, MaxWorkers: 1 },
                   env: { "SERVER_STARTER_PORT" => value }, inherit: sockets)
    end

    def ask(socket)
      socket.write("GET / HTTP/1.0\r\n\r\n")
      HttpResponse.parse(socket.read).body
    ensure
      socket.close
    end

    it "A8 B-starter every inherited socket is used, IPv6 and unix ones too, with the names of its own pair, and none is bound" do
      Dir.mktmpdir do |dir|
        path = File.join(dir, "app.sock")
        v4, bare, v6, unix = TCPServer.new("127.0.0.1", 0), TCPServer.new("127.0.0.1", 0), TCPServer.new("::1", 0), UNIXServer.new(path)
        ports = [v4, bare, v6].map { |socket| socket.addr[1] }
        server = inherited({ 10 => v4, 11 => bare, 12 => v6, 13 => unix },
                           "127.0.0.1:#{ports[0]}=10;#{ports[1]}=11;[::1]:#{ports[2]}=12;#{path}=13")
        bodies = [*ports.zip(%w[127.0.0.1 127.0.0.1 ::1]).map { |port, host| ask(TCPSocket.new(host, port)) }, ask(UNIXSocket.new(path))]
        names = bodies.map { |body| body.scan(/^SERVER_(?:NAME|PORT)="(.*)"$/).flatten }
        expect(names).to eq([["127.0.0.1", ports[0].to_s], ["0.0.0.0", ports[1].to_s], ["[::1]", ports[2].to_s], ["0.0.0.0", "0"]])
        expect(server.log.scan("starts Listening").size).to eq(4)
        server.stop
        # Those of others are left to them.
        expect(File).to be_socket(path)
        [v4, bare, v6, unix].each(&:close)
      end
    end

    # The last two are a file, and a socket that does not listen.
    { "what is no pair" => ["0.0.0.0:80", /\ASERVER_STARTER_PORT: "0\.0\.0\.0:80" is not of the form address=descriptor\z/],
      "a descriptor that is not open" => ["80=97", /descriptor 97 for 80 is not a listening socket\z/],
      "an empty address" => ["=3", /\ASERVER_STARTER_PORT: "=3" is not of the form/],
      "a descriptor that is no socket" => [-> { File.open(File::NULL) }, /\ASERVER_STARTER_PORT: descriptor \d+ for 80 is not a listening socket\z/],
      "a descriptor that does not listen" => [-> { UNIXSocket.pair.first }, /is not a listening socket\z/] }.each do |what, (value, message)|
      it "B-starter #{what} is an error of one line" do
        file = value.call if value.respond_to?(:call)
        value = "80=#{file.fileno}" if file
        expect { Fastrack::ServerStarter.listeners("SERVER_STARTER_PORT" => value) }.to raise_error(Fastrack::ListenError, message)
        file&.close
      end
    end

    it "A8 without start_server there is nothing inherited" do
      expect(Fastrack::ServerStarter.listeners({})).to eq([])
      expect(Fastrack::ServerStarter.listeners("SERVER_STARTER_PORT" => "")).to eq([])
    end
  end

  # A hot deploy: start_server starts the new generation beside the old one, and ends that after its interval.
  describe "with start_server itself" do
    before { skip "start_server is not installed (Debian: libserver-starter-perl)" unless system("command -v start_server >/dev/null") }

    let(:app) do
      <<~'RUBY'
        run ->(env) { sleep 0.01 if env["PATH_INFO"] == "/slow"; [200, {}, [ENV["SERVER_STARTER_GENERATION"]]] }
      RUBY
    end

    def generation(server)
      server.get.body.to_i
    end

    # Another generation is there, and the one before is gone.
    def deploy(server)
      before = generation(server)
      server.signal(:HUP)
      eventually { generation(server) > before }
      server.await_log(/^old worker \d+ died/, before)
    end

    { "--port" => "127.0.0.1:0", "--path" => "app.sock" }.each do |flag, address|
      it "A8 HUP deploys with no request lost, with #{flag}" do
        server = Server.start(ru: app, options: { Host: nil, Port: nil, MaxWorkers: 2 },
                              wrapper: ["start_server", "#{flag}=#{address}", "--interval=1", "--"])
        loop = ClientLoop.run(server, paths: %w[/ /slow] * 2) { 2.times { deploy(server) } }
        expect(loop.failures).to eq([])
        expect(loop.bodies.map(&:to_i).uniq).to contain_exactly(1, 2, 3)
        expect(server.stop.exitstatus).to eq(0)
        expect(server.processes).to be_empty
      end
    end
  end
end
