# frozen_string_literal: true

# Puma's plugins run in generation 0. What only one process can have, such as a port, goes from the old one's to the new one's.
RSpec.describe "A plugin of Puma's", exec: "generation 0 is a program of its own", once: "processes, signals and sockets" do
  include ReexecHelpers

  around { |example| FreePort.keep(1) { |port| (@port = port) && example.run } }

  # One with a port and a process, which notes its end.
  let(:plugin) { <<~RUBY }
    require "puma/plugin"
    Puma::Plugin.create do
      def start(launcher)
        server = TCPServer.new("127.0.0.1", #{@port})
        launcher.events.on_booted { @queue = fork { server.close; trap(:INT) { exit!(0) }; File.write("queue", $$); sleep } }
        launcher.events.on_stopped do
          sleep 0.01 while File.exist?("hold")
          server.close
          Process.kill(:INT, @queue)
          Process.wait(@queue)
          File.write("stopped", "\#{$$}\\n", mode: "a")
        end
        in_background { loop { server.accept.tap { |client| client.puts("\#{VERSION_OF_APP} \#{$$}") }.close } rescue nil }
      end
    end
  RUBY

  def app(version) = "VERSION_OF_APP = '#{version}'\n#{Rackups::GATE}"

  def serving(*options)
    words = options.flat_map { |option| ["-O", option] }
    Server.ready(ru: app("one"), command: [*Server::FASTRACK, "-C", "puma.rb", "-e", "production", "-O", "ErrRespawnInterval=0.1", *words],
                 files: { "puma.rb" => "bind 'tcp://127.0.0.1:0'\nplugin :port\nworkers 2", "lib/puma/plugin/port.rb" => plugin }, env: { "RUBYLIB" => "lib" })
  end

  # What the plugin says: the version of its app, and its process. Nobody may accept where a process has only the socket. The plugin's
  # process may have a copy of the client's socket, so that its end may never come.
  def said
    version, pid = TCPSocket.open("127.0.0.1", @port) { |socket| socket.wait_readable(5) ? socket.gets.to_s : "" }.split
    [version, pid.to_i]
  rescue SystemCallError
    nil
  end

  def await_said(server, version)
    eventually(20, -> { "#{said.inspect}\n#{server.log}" }) { said == [version, *server.molds] && queue_of(server) }
  end

  # Whether its process is that of the right generation 0.
  def queue_of(server) = ProcessTable.entry(server.lines_of("queue").first.to_i)&.parent == server.molds.first

  it "has its port and its process again after USR2, with new code, once the old master's has given them up" do
    server = serving
    await_said(server, "one")
    old = server.molds
    server.write("config.ru", app("two"))
    replace_master(server)
    await_said(server, "two")
    expect(server.lines_of("stopped").map(&:to_i)).to eq(old)
    server.signal(:TERM, to: server.master)
    await_processes(server, 0)
    expect(server.lines_of("stopped").size).to eq(2)
  end

  it "goes on when the new master of USR2 fails" do
    server = serving
    await_said(server, "one")
    before = said
    server.write("config.ru", "raise 'typo'")
    usr2(server)
    server.await_log("this one carries on")
    eventually(20, -> { said.inspect }) { said == before }
    expect([queue_of(server), server.lines_of("stopped")]).to eq([true, []])
  end

  it "starts in the new master when the old one is killed, and what is left of that still has the port" do
    server = serving("AutoQuit=false")
    server.write("config.ru", app("two"))
    usr2(server)
    server.await_log("is ready", 3)
    server.write("hold", "")
    server.signal(:KILL)
    server.await_log(/plugin :port does not start, and is tried again every 1 s: Address already in use/)
    server.remove("hold")
    await_said(server, "two")
  end

  it "has its port again when generation 0 is killed, though the workers stay" do
    server = serving
    await_said(server, "one")
    workers = server.workers
    Process.kill(:KILL, server.lines_of("queue").first.to_i)
    server.signal(:KILL, to: server.molds.first)
    eventually { server.molds.any? && said == ["one", *server.molds] }
    expect(server.workers).to eq(workers)
  end

  it "has its port after HUP while a worker of the old code still has a request" do
    server = serving
    request = SlowRequest.new(server)
    server.write("config.ru", app("two"))
    server.signal(:HUP)
    await_said(server, "two")
    expect(request.finish.status).to eq(200)
  end

  it "has as many workers replaced as ever by the next HUP while it still stops with the old code" do
    server = serving("GracefulTimeout=600")
    await_said(server, "one")
    request = SlowRequest.new(server)
    old = server.molds.first
    server.write("hold", "")
    2.times do |index|
      server.signal(:HUP)
      server.await_ready(index + 2)
    end
    expect(ProcessTable.alive?(old)).to be(true)
    server.remove("hold")
    expect(request.finish.status).to eq(200)
  end

  it "tmp_restart has a new master start where rackup has loaded the app, again and again, also when the file is touched while there are two" do
    server = Server.ready(ru: "code = File.read('code')\nrun ->(_env) { [200, {}, [code]] }", options: { ConfigFile: "puma.rb", AutoQuit: false, Host: nil, Port: nil },
                          files: { "puma.rb" => "bind 'tcp://127.0.0.1:0'\nplugin :tmp_restart\n", "code" => "one", "tmp/.keep" => "" })
    touch = lambda do |code, seconds|
      server.write("code", code)
      FileUtils.touch(server.file("tmp/restart.txt"), mtime: Time.now + seconds)
    end
    touch.call("two", 0)
    server.await_log("is ready", 3)
    second = server.master
    touch.call("three", 10)
    # Both look once a second, and wake up for little else.
    wakes = -> { [server.pid, second].map { |pid| Integer(File.read("/proc/#{pid}/status")[/^voluntary_ctxt_switches:\s+(\d+)/, 1]) } }
    before = wakes.call
    eventually { wakes.call.zip(before).all? { |now, earlier| now >= earlier + 5 } }
    server.signal(:QUIT)
    server.await_log("starting a new master", 2)
    server.await_log("is ready", 5)
    server.signal(:QUIT, to: second)
    eventually { !ProcessTable.alive?(second) && server.get.body == "three" }
    expect(server.log.scan(/was touched: restarting \(USR2\)$/).size).to eq(2)
    expect(server.log).not_to include("USR2 is ignored")
  end
end
