# frozen_string_literal: true

require_relative "../../lib/fastrack/configuration/handed"
require_relative "../../lib/fastrack/configuration/plain_data"

RSpec.describe "A ConfigFile" do
  describe "of `fastrack`", linux: "proc(5)", exec: "generation 0 is a program of its own", once: "processes" do
    def serve(config, ru = Rackups::PID, **files)
      Server.ready(ru: ru, config: config, fastrack: true, files: files.transform_keys(&:to_s), options: { MaxWorkers: nil })
    end

    def hup(server, times) = times.times { |time| server.signal(:HUP) && server.await_ready(2 + time) }

    def threads(server) = Dir.children("/proc/#{server.master}/task").size

    it "and the app see one environment, also after HUP" do
      reading = "File.foreach('.env', chomp: true) { |line| line.split('=', 2).then { |name, value| ENV[name] ||= value } }\n"
      server = serve("#{reading}max_workers ENV['NUMBER']\n", "run ->(_env) { [200, {}, [ENV['NUMBER']]] }", ".env": "NUMBER=1\n")
      expect([server.workers.size, server.get.body]).to eq([1, "1"])
      server.write(".env", "NUMBER=2\n")
      hup(server, 1)
      expect([server.await_workers(2).size, server.get.body]).to eq([2, "2"])
    end

    it "leaves no thread in the master, and none of its at_exit blocks runs there" do
      plain = serve("max_workers 1\n")
      server = serve(<<~'RUBY')
        max_workers 1
        3.times { Thread.new { sleep } }
        at_exit { File.write("exits", "#{Process.pid}\n", mode: "a") }
      RUBY
      expect(threads(server)).to be < threads(plain) + 3
      hup(server, 3)
      eventually(10, -> { threads(server) }) { threads(server) < threads(plain) + 3 }
      master = server.master
      expect(server.stop.exitstatus).to eq(0)
      expect(server.lines_of("exits")).not_to include(master.to_s)
    end

    # Answers with the pid of the process that listens there.
    def port_at(place) = <<~RUBY
      require "socket"
      Thread.new(#{place}) { |port| loop { port.accept.tap { |client| client.write(Process.pid.to_s) }.close } }
    RUBY

    def asked(port) = TCPSocket.open("127.0.0.1", port, &:read).to_i

    { "TCPServer" => "TCPServer.new('127.0.0.1', PORT)", "Socket" => "Socket.tcp_server_sockets('127.0.0.1', PORT).first.then { |one| TCPServer.for_fd(one.fileno).tap { KEPT = one } }" }.each do |name, place|
      it "that opens a port by #{name} has it after each HUP, and while a HUP fails" do
        FreePort.keep(1) do |port|
          server = serve("PORT = #{port}\n#{port_at(place)}max_workers 1\n")
          eventually { asked(port) == server.molds.first }
          hup(server, 2)
          eventually(10, -> { server.log }) { server.molds.size == 1 && asked(port) == server.molds.first }
          server.write("config.ru", "raise 'broken'")
          server.signal(:HUP)
          server.await_log("the new code is given up")
          eventually(10, -> { server.log }) { server.molds.size == 1 && asked(port) == server.molds.first }
        end
      end
    end

    it "whose app opens a port while it loads has it after HUP" do
      FreePort.keep(1) do |port|
        server = serve("max_workers 1\n", "#{port_at("TCPServer.new(#{port})")}#{Rackups::PID}")
        hup(server, 2)
        eventually(10, -> { server.log }) { server.molds.size == 1 && asked(port) == server.molds.first }
      end
    end

    it "that opens a port which another program has fails at HUP, and the log names the line" do
      FreePort.keep(1) do |port|
        server = serve("max_workers 1\n")
        other = TCPServer.new("127.0.0.1", port)
        server.reload("require 'socket'\nTCPServer.new('127.0.0.1', #{port})\n")
        server.await_log(/HUP changes nothing: ConfigFile .*fastrack\.rb:2: Address already in use/)
      ensure
        other&.close
      end
    end

    it "is read once for each start of the app" do
      server = serve("File.write('readings', \"x\\n\", mode: 'a')\nmax_workers 1\n")
      expect(server.lines_of("readings").size).to eq(1)
      hup(server, 2)
      expect(server.lines_of("readings").size).to eq(3)
    end

    it "that exits ends the start with its status, and one whose process is killed is named" do
      exits = Server.fail_to_start(ru: "", fastrack: true, config: "exit 3")
      expect(exits.status.exitstatus).to eq(3)
      killed = Server.fail_to_start(ru: "", fastrack: true, config: "Process.kill(:KILL, Process.pid)")
      expect([killed.status.exitstatus, killed.log]).to match([1, /^fastrack: generation 0 \(pid \d+\) was killed by SIGKILL while it read the ConfigFile$/])
    end
  end

  describe "as plain data" do
    data = Fastrack::PlainData

    it "comes back as it was" do
      [nil, true, false, -3, 1 << 70, 0.1, "", "\xFF\0;".dup, [], {}, [[1, "a"], { "b" => [nil, { "c" => 2.5 }] }]].each do |value|
        expect(data.load(data.dump(value))).to eq(value)
      end
    end

    it "is an Error, and no other exception, where its bytes are no data" do
      random = Random.new(1)
      whole = data.dump("a" => [1, 2.5, nil, true, "text", [{ "b" => "c" }]])
      3000.times do
        broken = whole.dup.tap { |bytes| rand(1..4).times { bytes.setbyte(random.rand(bytes.bytesize), random.rand(256)) } }
        [broken, broken[0, random.rand(broken.bytesize)], random.bytes(random.rand(40))].each do |bytes|
          data.load(bytes)
        rescue Fastrack::Error => e
          expect(e.message).to eq("the data is broken")
        end
      end
    end

    it "has each value of a configuration as the master uses it" do
      given = { Listen: "ssl://127.0.0.1:1?cert=a.pem&key=a.key,unix:x.sock,8080", MaxMemoryPerChild: "300M", MaxMemory: "0", OobGC: "auto", CacheControl: "/a* no-store",
                TrustedProxies: "private", ACMEAccount: "id:a2V5", TLSDomains: "one.test,two.test", ControlPath: "none", PublicFiles: "none", Umask: "027", RequestTimeout: "30s",
                AccessLog: "-", LogFormat: "json", PublicLinks: "a,b", ForceSSLExcept: "/up", MaxStreams: 3 }
      quiet = Object.new.tap { |output| def output.puts(*) = nil }
      found = Fastrack::Configuration.new(given, environment: {}, output: quiet, warnings: quiet)
      handed = Fastrack::HandedConfiguration.new(found, data.load(data.dump(Fastrack::Reading.of(found))))
      paths = %i[Listen PublicLinks]
      (Fastrack::Option::ALL.map(&:name) - paths).each { |name| expect([name, handed.value(name)]).to eq([name, found.value(name)]) }
      expect(handed.listen.map { |one| [one.to_s, one.tls?, one.certificates] })
        .to eq(found.listen.map { |one| [one.to_s, one.tls?, one.certificates.map { |pair| pair.map { |path| File.expand_path(path) } }] })
      expect(handed.public_links).to eq(found.public_links.map { |path| File.expand_path(path) })
    end
  end
end
