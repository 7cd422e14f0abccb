# frozen_string_literal: true

require "etc"

# A master that root runs reads the keys, and hands them to the proxy.
RSpec.describe "the proxy: keys that only root can read", if: Process.uid.zero? && RUBY_PLATFORM.include?("linux"), once: "files of the master" do
  def server = @server

  # Only root can change where a path below it leads.
  let(:vault) { Dir.mktmpdir("fastrack-keys", "/run") }
  # The app's user can.
  let(:shared) { Dir.mktmpdir("fastrack-keys").tap { |dir| File.chmod(0o755, dir) && File.chown(nobody, nil, dir) } }

  after do |one|
    Server.show_logs if one.exception
    Server.stop_all(:example)
    [vault, shared].each { |dir| FileUtils.remove_entry(dir) }
  end

  both = "user 'nobody'\nproxy_user 'daemon'\n"

  # Answers with the content of a file, or with the reason why the app cannot read it.
  reader = 'run ->(env) { [200, { "content-type" => "text/plain" }, [(File.binread(env["QUERY_STRING"]) rescue $!.class.to_s)]] }'

  def nobody = Etc.getpwnam("nobody").uid

  def put(folder, files) = files.each { |name, text| write(File.join(folder, name), text) }

  # Replaces a file of root's as a whole.
  def write(path, text)
    File.write("#{path}.new", text, perm: path.end_with?(".key") ? 0o600 : 0o644)
    File.rename("#{path}.new", path)
  end

  define_method(:config) { |users, folder = vault| "bind 'ssl://127.0.0.1:0?cert=#{folder}/a.pem&key=#{folder}/a.key'\nmax_workers 1\n#{users}" }

  define_method(:start) do |config, **keywords|
    @server = Server.launch(ru: reader, fastrack: true, files: { "app.rb" => "" }, config: config, options: { "Host" => nil, "Port" => nil }, **keywords).tap(&:await_ready)
  end

  def subject_of(name) = "/CN=fastrack-spec/O=#{name}"

  def served(port = server.port)
    tls = OpenSSL::SSL::SSLSocket.new(TCPSocket.new("127.0.0.1", port)).tap(&:connect)
    tls.sync_close = true
    tls.close
    tls.peer_cert.subject.to_s
  end

  def renewed(name) = Edge.files(name).transform_keys { |file| file.sub(name, "a") }

  # Whether these bytes are in the memory of a process, or in a file without a name that it has open.
  def knows?(pid, bytes)
    memory(pid).any? { |part| part.include?(bytes) } || Dir.glob("/proc/#{pid}/fd/*").any? { |fd| Portable::MEMORY.match?(File.readlink(fd)) && File.binread(fd).include?(bytes) }
  end

  # Those parts of a process's memory that it can change.
  def memory(pid)
    File.open("/proc/#{pid}/mem", "rb") do |file|
      File.readlines("/proc/#{pid}/maps").filter_map { |line| line[/\A\h+-\h+ rw/] }.filter_map do |range|
        from, to = range.split.first.split("-").map(&:hex)
        file.pread(to - from, from)
      rescue SystemCallError
        nil
      end
    end
  end

  { "User" => "user 'nobody'\n", "User and ProxyUser" => both }.each do |what, users|
    it "serve with #{what}, are renewed, and survive HUP, USR2 and the end of the proxy" do
      put(vault, Edge.files)
      start(config(users))
      expect(served).to eq(subject_of("a"))
      put(vault, renewed("b"))
      eventually { served == subject_of("b") }
      server.signal(:HUP)
      server.await_ready(2)
      expect(served).to eq(subject_of("b"))
      put(vault, renewed("c"))
      server.signal(:USR2)
      server.await_ready(3)
      eventually { served == subject_of("c") }
    end
  end

  it "are in no process but the proxy: neither in the memory nor in a file of those that run the app, nor in the master's memory" do
    put(vault, Edge.files)
    start(config("user 'nobody'\n"))
    # Those processes are younger than the proxy.
    server.signal(:HUP)
    server.await_ready(2)
    bytes = File.readlines("#{vault}/a.key", chomp: true)[1]
    expect(Edge.curl(server, path: "/?#{vault}/a.key").first).to eq("Errno::EACCES")
    proxy = Edge.proxy(server)
    others = ProcessTable.children(server.master) - [proxy]
    expect([others.size, others.select { |pid| knows?(pid, bytes) }]).to match([be >= 2, []])
    expect(memory(server.master).any? { |part| part.include?(bytes) }).to be(false)
    expect(knows?(server.master, bytes)).to be(true)
  end

  it "are kept by the master: with a key that is gone the next proxy serves as before, until there is another one" do
    put(vault, Edge.files)
    start(config(both))
    File.unlink("#{vault}/a.key")
    server.await_log("the certificates stay as they are: cannot read #{vault}/a.key: no such file or directory")
    old = Edge.proxy(server)
    Process.kill(:KILL, old)
    server.await_log("starting another one")
    eventually { Edge.curl(server).last.success? }
    expect([served, Edge.proxy(server) == old]).to eq([subject_of("a"), false])
    put(vault, renewed("b"))
    eventually { served == subject_of("b") }
  end

  it "are told once where they cannot be read, however often the master looks" do
    FreePort.keep(2) do |port|
      [vault, shared].each { |dir| put(dir, Edge.files) }
      File.chmod(0o644, "#{shared}/a.key")
      binds = [shared, vault].each_with_index.map { |dir, index| "bind 'ssl://127.0.0.1:#{port + index}?cert=#{dir}/a.pem&key=#{dir}/a.key'\n" }
      start("#{binds.join}max_workers 1\n#{both}")
      put(shared, "a.key" => Edge.files["a.key"])
      told = "the certificates stay as they are: cannot read #{shared}/a.key: permission denied to user daemon"
      server.await_log(told)
      # Looks that find something else.
      %w[b c d].each do |name|
        put(vault, renewed(name))
        eventually { served(port + 1) == subject_of(name) }
      end
      expect([server.log.scan(told).size, served(port)]).to eq([1, subject_of("a")])
    end
  end

  it "may as well be the proxy's user's own, also where root may not read them, as in a container without capabilities" do
    put(vault, Edge.files)
    File.chmod(0o755, vault)
    File.chown(Etc.getpwnam("daemon").uid, nil, "#{vault}/a.key")
    start(config(both), wrapper: %w[setpriv --bounding-set=-dac_override,-dac_read_search])
    expect(served).to eq(subject_of("a"))
  end

  it "are not read through a link of the app's user" do
    put(vault, Edge.files)
    put(shared, Edge.files)
    File.unlink("#{shared}/a.key")
    File.symlink("#{vault}/a.key", "#{shared}/a.key")
    failed = Server.fail_to_start(ru: reader, fastrack: true, files: { "app.rb" => "" }, config: config(both, shared), options: { "Host" => nil, "Port" => nil })
    expect([failed.status.exitstatus, failed.log])
      .to match([1, include("the proxy does not start: cannot read #{shared}/a.key: permission denied to user daemon: root reads only files that the start " \
                            "has named, by a path that only root can change")])
  end

  it "are not read because new code names them: the old certificate stays, and the log says why" do
    put(vault, Edge.files.merge(Edge.files("b")))
    start(config(both))
    server.reload(config(both).gsub("/a.", "/b."))
    server.await_log("the certificates stay as they are: cannot read #{vault}/b.pem: permission denied to user daemon")
    expect(served).to eq(subject_of("a"))
  end

  it "are told by `fastrack check` where the app's user can read them, too" do
    put(vault, Edge.files)
    File.chmod(0o755, vault)
    check = lambda do |users|
      Dir.mktmpdir do |dir|
        { "config.ru" => "run ->(_) { [200, {}, []] }", "config/fastrack.rb" => config(users) }.each { |name, text| Folder.write(dir, name, text) }
        Open3.capture2e(Server::CLEAN_ENVIRONMENT, *Server::FASTRACK, "check", "-E", "production", chdir: dir).first.lines.grep(/proxy/)
      end
    end
    expect(check.call(both)).to eq(["proxy: its files are right\n"])
    expect(check.call("user 'nobody'\n")).to eq(["proxy: its files are right\n"])
    File.chmod(0o644, "#{vault}/a.key")
    expect(check.call(both)).to eq(["proxy: its files are right\n", "proxy: the app's user nobody can read the private key #{vault}/a.key: put it where only root can read it\n"])
  end
end
