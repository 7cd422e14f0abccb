# frozen_string_literal: true

require_relative "../../lib/fastrack/configuration/options"

# The specs have systemd's part: they hand sockets over, and listen to what is said on NOTIFY_SOCKET.
RSpec.describe "Under systemd", once: "sockets and processes" do
  include Folder

  # Becomes the process that LISTEN_PID names, as systemd does between fork and exec.
  activation = ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh"]

  def start(sockets, env: {}, **keywords)
    env = { "LISTEN_FDS" => sockets.size.to_s }.merge(env)
    Server.start(ru: Rackups::ENV_LINES, options: { Host: nil, Port: nil, MaxWorkers: 1 }, fastrack: true, env: env,
                 inherit: sockets.each_with_index.to_h { |socket, index| [3 + index, socket] }, **keywords)
  end

  def installed?(program) = ENV["PATH"].split(":").any? { |folder| File.executable?(File.join(folder, program)) }
  def names(socket) = HttpResponse.ask(socket).body.scan(/^SERVER_(?:NAME|PORT)="(.*)"$/).flatten

  describe "socket activation" do
    it "C6 uses every socket that it is given, and binds none" do
      path = "#{@dir}/app.sock"
      sockets = [TCPServer.new("127.0.0.1", 0), UNIXServer.new(path), TCPServer.new("::1", 0)]
      server = start(sockets, wrapper: activation, env: { "LISTEN_FDNAMES" => "web:local:six" })
      ports = [sockets[0], sockets[2]].map { |socket| socket.addr[1].to_s }
      expect(names(TCPSocket.new("127.0.0.1", ports[0]))).to eq(["127.0.0.1", ports[0]])
      expect(names(UNIXSocket.new(path))).to eq(%w[localhost 80])
      expect(names(TCPSocket.new("::1", ports[1]))).to eq(["[::1]", ports[1]])
      expect(server.log.scan(/Listening on/).size).to eq(3)
      server.stop
      expect(File).to be_socket(path)
      sockets.each(&:close)
    end

    it "C6 an address with ssl:// whose port is none of the sockets' is one warning" do
      TCPServer.open("127.0.0.1", 0) do |socket|
        server = start([socket], wrapper: activation, config: "bind 'ssl://127.0.0.1:1?cert=a.pem&key=a.key'", files: Edge.files)
        expect(server.log.scan("fastrack: ssl://127.0.0.1:1 is not served: the supervisor has passed no socket with port 1\n").size).to eq(1)
        server.stop
      end
    end

    it "C6 sockets for another process, as for a shell in between, are not taken, and a line says so" do
      TCPServer.open("127.0.0.1", 0) do |socket|
        server = start([socket], options: { Host: "127.0.0.1", Port: 0, MaxWorkers: 1 }, env: { "LISTEN_PID" => "1" })
        expect(server.port).not_to eq(socket.addr[1])
        line = /^fastrack: systemd's sockets \(LISTEN_FDS\) are for process "1", and this is process #{server.master}, /
        expect(server.log.scan(line).size).to eq(1)
        expect(server.get.status).to eq(200)
        server.stop
      end
    end

    it "C6 what the app starts has neither the sockets nor their variables" do
      TCPServer.open("127.0.0.1", 0) do |socket|
        server = start([socket], wrapper: activation, config: "before_fork { File.write('seen', `env; ls -l /proc/self/fd`) }")
        expect(names(TCPSocket.new("127.0.0.1", socket.addr[1]))).not_to be_empty
        expect(server.lines_of("seen").grep(/LISTEN_|socket:/)).to eq([])
        expect(server.lines_of("seen").grep(/PATH=/)).not_to be_empty
        server.stop
      end
    end

    it "C6 what is not a listening stream socket is one line, with its name" do
      UDPSocket.new.tap do |socket|
        socket.bind("127.0.0.1", 0)
        server = Server.fail_to_start(ru: Rackups::PID, inherit: { 3 => socket }, wrapper: activation,
                                      env: { "LISTEN_FDS" => "1", "LISTEN_FDNAMES" => "dns" })
        expect(server.log).to eq("fastrack: LISTEN_FDS: descriptor 3 (dns) is not a listening stream socket; " \
                                 "the socket unit needs ListenStream= and Accept=no\n")
        expect(server.status.exitstatus).to eq(1)
        socket.close
      end
    end
  end

  describe "notification" do
    before { @systemd = Socket.new(:UNIX, :DGRAM).tap { |socket| socket.bind(Addrinfo.unix("#{@dir}/notify")) } }

    after { @systemd.close }

    def notifying(env = {}, **keywords)
      Server.start(ru: Rackups::PID, options: { MaxWorkers: 2 }, fastrack: true, env: { "NOTIFY_SOCKET" => "#{@dir}/notify" }.merge(env),
                   **keywords)
    end

    # The next message that begins so, as a Hash; others are left out.
    def heard(word)
      loop do
        raise "#{word} was not said" unless @systemd.wait_readable(GcMode.patient(20))

        message = @systemd.recv(4096).lines(chomp: true).to_h { |line| line.split("=", 2) }
        return message if message.key?(word)
      end
    end

    # Leaves out what was said so far.
    def forget
      @systemd.recv(4096) while @systemd.wait_readable(0)
    end

    it "C6 READY is said when all workers serve, RELOADING when HUP arrives, and STOPPING when they are told to stop" do
      server = notifying(config: "after_fork { |_, worker| sleep 0.01 until worker.nr.zero? || File.exist?('go') }")
      expect(@systemd.wait_readable(0.3)).to be_nil
      server.write("go", "")
      expect(heard("READY")).to include("READY" => "1", "STATUS" => "2 workers")
      before = server.await_workers(2)
      server.signal(:HUP)
      expect(heard("RELOADING")["MONOTONIC_USEC"]).to match(/\A\d+\z/)
      heard("READY")
      expect(server.await_workers(2) & before).to eq([])
      server.signal(:TERM)
      expect(heard("STOPPING")).to eq("STOPPING" => "1")
    end

    it "C6 READY ends a reload that comes to nothing: the ConfigFile raises, the new master fails" do
      server = notifying(config: "")
      heard("READY")
      server.write("fastrack.rb", "raise 'typo'")
      %i[HUP USR2].each do |name|
        server.signal(name)
        expect(heard("RELOADING")).to include("MONOTONIC_USEC")
        expect(heard("READY")).to eq("READY" => "1", "STATUS" => "2 workers")
      end
    end

    it "C6 after USR2 the new master says that it is the main process, with the sockets of the unit" do
      TCPServer.open("127.0.0.1", 0) do |socket|
        server = start([socket], wrapper: activation, env: { "NOTIFY_SOCKET" => "#{@dir}/notify" },
                                 config: "before_fork { File.write('seen', ENV.keys.join(' ') + \"\\n\", mode: 'a') }")
        heard("READY")
        server.signal(:USR2)
        fresh = heard("MAINPID")["MAINPID"].to_i
        heard("READY")
        expect(server.wait.exitstatus).to eq(0)
        # By STOPPING, from whichever process, systemd takes the whole unit for one that ends.
        said = []
        said << @systemd.recv(4096) while @systemd.wait_readable(0)
        expect(said.grep(/STOPPING/)).to eq([])
        expect(names(TCPSocket.new("127.0.0.1", socket.addr[1]))).to eq(["127.0.0.1", socket.addr[1].to_s])
        # What systemd had told the old one is nothing for the new one's app.
        expect([server.lines_of("seen").grep(/LISTEN_/), server.lines_of("seen").size]).to eq([[], 2])
        Process.kill(:TERM, fresh)
        expect(heard("STOPPING")).not_to be_nil
        eventually { ProcessTable.entry(fresh).nil? }
      end
    end

    it "C6 WATCHDOG is said by the new master after USR2, though systemd waits for the old one's pid" do
      server = notifying({ "WATCHDOG_USEC" => "400000" }, wrapper: ["sh", "-c", 'WATCHDOG_PID=$$ exec "$@"', "sh"])
      heard("WATCHDOG")
      server.signal(:USR2)
      expect(server.wait.exitstatus).to eq(0)
      forget
      heard("WATCHDOG")
    end

    # How often is in sd_notify_spec.rb.
    it "C6 WATCHDOG is said again and again, no more often than need be, and not when the master hangs" do
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      server = notifying({ "WATCHDOG_USEC" => "1200000" })
      5.times { heard("WATCHDOG") }
      expect(Process.clock_gettime(Process::CLOCK_MONOTONIC) - began).to be >= 4 * 0.6
      server.signal(:STOP)
      eventually { ProcessTable.entry(server.master).state == "T" }
      forget
      expect(@systemd.wait_readable(1.2)).to be_nil
    ensure
      server&.signal(:CONT)
    end
  end

  describe "the units in examples/systemd" do
    units = %w[fastrack.service fastrack.socket].map { |name| File.join(Server::ROOT, "examples/systemd", name) }

    # Settings by name; a name may be there more than once.
    def settings(path)
      File.readlines(path, chomp: true).grep(/\A[A-Z]\w+=/).map { |line| line.split("=", 2) }.group_by(&:first).transform_values { |all| all.map(&:last) }
    end

    it "C6 fit each other and the server" do
      service, socket = units.map { |path| settings(path) }
      expect(service).to include("Type" => ["notify"], "NotifyAccess" => ["all"], "Requires" => ["fastrack.socket"], "KillMode" => ["mixed"])
      expect(service["TimeoutStopSec"].first.to_f).to be > Fastrack::Option::BY_NAME[:GracefulTimeout].default
      expect(service["TimeoutStartSec"].first.to_f).to be >= Fastrack::Option::BY_NAME[:BootTimeout].default
      expect(socket["ListenStream"]).not_to be_empty
    end

    # What systemd does with them, for an app in another folder than /srv/app.
    it "C6 start the server, and a reload brings the release that the link leads to by then" do
      here = ->(words) { words.gsub("/srv/app", @dir).gsub(%r{/run/(?=app/)}, "#{@dir}/run/") }
      service = settings(units.first).transform_values { |values| values.map(&here) }
      %w[one two].each do |name|
        Dir.mkdir("#{@dir}/#{name}")
        File.write("#{@dir}/#{name}/config.ru", "run ->(_env) { [200, {}, ['#{name}']] }")
      end
      File.symlink("one", "#{@dir}/current")
      service["RuntimeDirectory"].each { |name| FileUtils.mkdir_p("#{@dir}/run/#{name}") }
      command = service["ExecStart"].first.sub("/usr/bin/bundle exec fastrack", "#{RbConfig.ruby} -w #{Server::COMMAND}")
      environment = service["Environment"].to_h { |entry| entry.split("=", 2) }
      UNIXServer.open("#{@dir}/app.sock") do |socket|
        main = spawn({ **Server::CLEAN_ENVIRONMENT, **environment, "LISTEN_FDS" => "1" }, *activation, *command.split,
                     chdir: File.realpath(service["WorkingDirectory"].first), 3 => socket, %i[out err] => "#{@dir}/log")
        eventually(20, -> { File.read("#{@dir}/log") }) { File.read("#{@dir}/log").include?("is ready Workers:4") }
        expect(asked).to eq("one")
        File.unlink("#{@dir}/current")
        File.symlink("two", "#{@dir}/current")
        expect(system({ "MAINPID" => main.to_s }, service["ExecReload"].first)).to be(true)
        expect([Process.wait2(main).last.exitstatus, asked]).to eq([0, "two"])
        MonitorClient.new("#{@dir}/run/app/app.control").await { |status| status["phase"] == "serving" && status["pid"] == File.read("#{@dir}/run/app/app.pid").to_i }
      ensure
        last = File.read("#{@dir}/log")[/.*is ready Workers:4 Pid:(\d+)/m, 1].to_i
        Process.kill(:TERM, last) if last.positive?
        eventually { ProcessTable.entry(last).nil? }
      end
    end

    def asked = HttpResponse.ask(UNIXSocket.new("#{@dir}/app.sock")).body

    it "C6 are in order for systemd-analyze" do
      skip "systemd is not installed" unless installed?("systemd-analyze")
      found = `systemd-analyze verify #{units.join(" ")} 2>&1`
      # Programs that this machine lacks are no fault of the units'.
      expect(found.lines.grep(%r{fastrack\.(?:service|socket)}).grep_v(/not executable|No such file/)).to eq([])
    end
  end
end
