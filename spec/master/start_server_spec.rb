# frozen_string_literal: true

require_relative "../../lib/fastrack/listener/inherited"

RSpec.describe "Under start_server", once: "sockets" do
  # Without the program itself: any process that hands sockets over is as good.
  describe "SERVER_STARTER_PORT" do
    def inherited(sockets, value)
      Server.start(ru: Rackups::ENV_LINES, options: { Host: nil, Port: nil, MaxWorkers: 1 },
                   env: { "SERVER_STARTER_PORT" => value }, inherit: sockets)
    end

    it "A8 B-starter every inherited socket is used, IPv6 and unix ones too, with the names of its own pair, and none is bound" do
      Dir.mktmpdir do |dir|
        path = File.join(dir, "app.sock")
        v4, bare, v6, unix = TCPServer.new("127.0.0.1", 0), TCPServer.new("127.0.0.1", 0), TCPServer.new("::1", 0), UNIXServer.new(path)
        ports = [v4, bare, v6].map { |socket| socket.addr[1] }
        server = inherited({ 10 => v4, 11 => bare, 12 => v6, 13 => unix },
                           "127.0.0.1:#{ports[0]}=10;#{ports[1]}=11;[::1]:#{ports[2]}=12;#{path}=13")
        sockets = [*ports.zip(%w[127.0.0.1 127.0.0.1 ::1]).map { |port, host| TCPSocket.new(host, port) }, UNIXSocket.new(path)]
        names = sockets.map { |socket| HttpResponse.ask(socket).body.scan(/^SERVER_(?:NAME|PORT)="(.*)"$/).flatten }
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
  end
end
