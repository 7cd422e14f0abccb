# frozen_string_literal: true

require_relative "../../lib/fastrack/proxy/program"

RSpec.describe "the proxy: its process, and those of the workers", once: "the program knows no Ruby" do
  def server = @server

  slow_app = <<~RUBY
    run(lambda do |env|
      File.write("called-\#{env["QUERY_STRING"]}", Process.pid.to_s, mode: "a")
      case env["PATH_INFO"]
      when "/die" then Process.kill(:KILL, Process.pid)
      when "/die-once" then Process.kill(:KILL, Process.pid) if File.size("called-\#{env["QUERY_STRING"]}") <= Process.pid.to_s.size
      when "/slow" then sleep 0.01 until File.exist?("go")
      when "/half"
        body = Enumerator.new { |parts| parts << "half" * 5000; sleep 0.5; Process.kill(:KILL, Process.pid) }
        next [200, { "content-length" => "40000" }, body]
      end
      [200, { "content-type" => "text/plain" }, ["pid \#{Process.pid}"]]
    end)
  RUBY

  define_method(:start) { |config = "", **keywords| @server = Edge.start(ru: slow_app, config: "err_respawn_interval 0\n#{config}", **keywords) }
  def code(*options, path: "/") = Edge.curl(server, "-o", File::NULL, "-w", "%{http_code}", *options, path: path).first

  it "runs without the app in its memory, and takes little of it" do
    start
    Edge.curl(server)
    proxy = Edge.proxy(server)
    expect(File.binread(Fastrack::Proxy::Program.path)).not_to include("rb_define_method")
    expect(File.read("/proc/#{proxy}/status")[/^VmRSS:\s+(\d+)/, 1].to_i).to be < 12 * 1024
  end

  it "a GET or HEAD whose worker dies is tried once more, and any other request is a 502" do
    start("max_workers 2\n")
    expect([code(path: "/die-once?get"), code("-I", path: "/die-once?head")]).to eq(%w[200 200])
    expect(code("-X", "POST", "-d", "a=b", path: "/die-once?post")).to eq("502")
    expect(code(path: "/die?always")).to eq("502")
    # Twice, and never again.
    expect(File.read(server.file("called-always")).size).to be_between(2, 16)
    expect(code(path: "/")).to eq("200")
  end

  it "half a response never passes for a whole one" do
    start
    %w[--http2 --http1.1].each { |option| expect(Edge.curl(server, option, path: "/half").last).not_to be_success }
  end

  it "another one takes the place of one that is killed, on the same port, within a second" do
    start
    old = Edge.proxy(server)
    Process.kill(:KILL, old)
    began = Eventually.now
    eventually { Edge.curl(server).last.success? }
    expect(Eventually.now - began).to be < GcMode.patient(5)
    expect(server.log).to include("the proxy (pid #{old}) was killed by SIGKILL: starting another one")
    expect(Edge.proxy(server)).not_to eq(old)
  end

  it "it ends with a master that is killed" do
    start
    all = [*server.workers, server.master]
    Process.kill(:KILL, server.master)
    eventually { all.none? { |pid| ProcessTable.alive?(pid) } }
  end

  it "the socket that a killed server leaves is removed by the next one" do
    # Any server of this user's would remove it from the usual folder.
    Dir.mktmpdir do |folder|
      File.write(File.join(folder, "other_folder.rb"), <<~RUBY)
        require "#{Server::LIB}/fastrack/process/user_folder"
        Fastrack::UserFolder.singleton_class.prepend(Module.new { def of(_user) = "#{folder}" })
      RUBY
      elsewhere = { env: { "RUBYOPT" => "-r#{folder}/other_folder.rb" } }
      start("", **elsewhere)
      socket = "#{folder}/#{server.master}.proxy"
      Process.kill(:KILL, server.master)
      eventually { server.processes.empty? }
      expect(File.socket?(socket)).to be(true)
      start("", **elsewhere)
      expect(File.exist?(socket)).to be(false)
      server.stop
    end
  end

  it "a root master starts it as the workers' user, and nobody can reach the workers' socket by its path" do
    skip "takes root" unless Process.euid.zero?

    files = Edge.files.merge("app.rb" => "")
    @server = Server.launch(ru: slow_app, fastrack: true, files: files, options: { "Host" => nil, "Port" => nil },
                            config: "bind 'ssl://127.0.0.1:0?cert=a.pem&key=a.key'\nmax_workers 1\nuser 'nobody'")
    [server.dir, *Dir.glob(server.file("*"))].each { |path| File.chmod(File.directory?(path) ? 0o777 : 0o644, path) }
    server.await_ready
    nobody = Etc.getpwnam("nobody").uid
    socket = File.read("/proc/net/unix")[%r{\S+/#{server.master}\.proxy$}]
    found = [File.stat("/proc/#{Edge.proxy(server)}").uid, File.stat(socket).uid, File.stat(socket).mode & 0o777, File.stat(File.dirname(socket)).mode & 0o777]
    expect([code, found, File.stat(File.dirname(socket)).uid]).to eq(["200", [nobody, nobody, 0o600, 0o700], 0])
  end

  %i[TERM QUIT].each do |signal|
    it "#{signal} lets requests finish, and accepts no others" do
      start
      asked = Thread.new { Edge.curl(server, path: "/slow?#{signal}") }
      server.await_file("called-#{signal}")
      server.signal(signal)
      eventually { server.refused? }
      server.write("go", "")
      text, status = asked.value
      expect([text, status.success?]).to match([/\Apid/, true])
      expect(server.wait.exitstatus).to eq(0)
      expect(Dir.exist?("/tmp/fastrack-#{Process.euid}") && Dir.children("/tmp/fastrack-#{Process.euid}").grep(/\A#{server.master}\.proxy/)).to be_falsy.or be_empty
    end
  end

  it "a request that outlasts GracefulTimeout is cut" do
    start("graceful_timeout 0.3\n")
    asked = Thread.new { Edge.curl(server, path: "/slow?late") }
    server.await_file("called-late")
    server.signal(:TERM)
    expect([server.wait.exitstatus, asked.value.last.success?]).to eq([0, false])
  end

  it "the proxy and the workers have GracefulTimeout together, not each" do
    start("graceful_timeout 10\nrequest_timeout 0\n")
    asked = Thread.new { Edge.curl(server, path: "/slow?late") }
    server.await_file("called-late")
    server.signal(:TERM)
    expect([server.wait.exitstatus, asked.value.last.success?]).to eq([0, false])
    expect(server.log[/stopped, ([\d.]+) s after TERM/, 1].to_f).to be_between(9.9, 19)
  end

  it "USR2 hands the port to another proxy, and the old one finishes its requests" do
    start
    old = [server.master, Edge.proxy(server)]
    asked = Thread.new { Edge.curl(server, path: "/slow?old") }
    server.await_file("called-old")
    server.signal(:USR2)
    server.await_ready(2)
    answers = Array.new(20) { code }
    server.write("go", "")
    expect([asked.value.last.success?, answers.uniq]).to eq([true, ["200"]])
    eventually { old.none? { |pid| ProcessTable.alive?(pid) } }
    expect([code, ProcessTable.alive?(Edge.proxy(server))]).to eq(["200", true])
  end

  it "no request fails while workers are replaced, killed between requests, and the master too" do
    start("max_workers 2\nmax_request_per_child 20\n")
    stop = false
    codes = []
    asking = Thread.new { codes.concat(code("--no-progress-meter", "-w", "%{http_code}\n", path: "/?[1-20]").scan(/\d{3}/)) until stop }
    2.times { |time| server.reload && server.await_ready(time + 2) }
    server.signal(:USR2)
    server.await_ready(4)
    eventually(60) { codes.size > 20 }
    stop = true
    asking.join
    expect(codes.tally).to eq("200" => codes.size)
  end

  it "a worker that dies while the proxy finishes its requests has a successor" do
    start("max_workers 2\n")
    asked = Thread.new { Edge.curl(server, path: "/slow?last") }
    server.await_file("called-last")
    busy = eventually { File.read(server.file("called-last")).to_i.then { |pid| pid if pid.positive? } }
    before = server.workers - server.molds - [Edge.proxy(server)]
    server.signal(:TERM)
    eventually { server.refused? }
    Process.kill(:KILL, *(before - [busy]))
    eventually(Server::DEADLINE, -> { server.log }) { (server.workers - server.molds - before - [Edge.proxy(server)]).any? }
    server.write("go", "")
    expect([asked.value.last.success?, server.wait.exitstatus, server.log[/cannot spawn.*/]]).to eq([true, 0, nil])
  end

  describe "under load" do
    # Asks until changes were made for long enough; LOAD=full: as long as before a release.
    #
    # @yieldreturn [String, nil] what has failed
    def failures(changes)
      ends = Eventually.now + (ENV["LOAD"] == "full" ? 60 : 5)
      failed = []
      asking = Thread.new { failed.concat([*yield]) while Eventually.now < ends }
      changes.cycle { |change| asking.alive? ? change.call && sleep(0.3) : break }
      asking.join
      failed
    end

    def anew(signal) = server.signal(signal, to: server.master) && server.await_ready(@generation = @generation.to_i.clamp(1..) + 1)

    def kill
      (server.workers - server.molds - [Edge.proxy(server)]).sample&.then { |pid| Process.kill(:KILL, pid) }
      # A request of the worker's is tried once more, and is to be answered before another worker is killed.
      2.times { code }
    rescue Errno::ESRCH
      # The worker was just recycled.
      nil
    end

    it "no GET fails, and no connection is closed, while workers are replaced, recycled and killed" do
      skip "no h2load" unless ENV.fetch("PATH").split(":").any? { |dir| File.executable?(File.join(dir, "h2load")) }
      start("max_workers 2\nmax_request_per_child 500\n")
      # h2load connects once: a connection that ends takes the rest of its requests with it.
      failed = failures([-> { anew(:HUP) }, -> { kill }, -> { kill }]) do
        said, = Open3.capture2e("h2load", "-n", "2000", "-c", "4", "-m", "8", "https://127.0.0.1:#{server.port}/")
        said unless said.include?(" 2000 succeeded, 0 failed, 0 errored, 0 timeout") && said.include?("status codes: 2000 2xx")
      end
      expect(failed).to eq([])
    end

    it "no GET fails while the master is replaced and workers are killed" do
      start("max_workers 2\nmax_request_per_child 500\n")
      # curl repeats a request that the server has refused by GOAWAY.
      options = ["--no-progress-meter", "--parallel", "--parallel-max", "16", "-w", "%{http_code}\n"]
      failed = failures([-> { anew(:USR2) }, -> { kill }]) do
        codes = Edge.curl(server, *options, "-o", File::NULL, path: "/?[1-200]").first
        codes unless codes == "200\n" * 200
      end
      expect(failed).to eq([])
    end
  end

  it "HUP gives another address its proxy, and takes it from one that is no longer named" do
    start
    FreePort.keep do |port|
      server.reload("bind 'ssl://127.0.0.1:#{port}?cert=a.pem&key=a.key'\nmax_workers 1\n")
      server.await_ready(2)
      text, = Open3.capture2e("curl", "-sSk", "-o", File::NULL, "-w", "%{http_code}", "https://127.0.0.1:#{port}/")
      expect(text).to eq("200")
    end
  end

  it "HUP without TLS gives the port back to the workers" do
    @server = Server.ready(ru: slow_app, fastrack: true, config: "compress true\nhost '127.0.0.1'\nport 0\nmax_workers 1", options: { "Host" => nil, "Port" => nil })
    proxy = Edge.proxy(server)
    server.reload("host '127.0.0.1'\nport 0\nmax_workers 1")
    server.await_ready(2)
    eventually { !ProcessTable.alive?(proxy) }
    expect(server.get("/").status).to eq(200)
  end
end
