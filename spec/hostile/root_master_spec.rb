# frozen_string_literal: true

require_relative "../../lib/fastrack/configuration/option"
require_relative "../../lib/fastrack/process/safe_file"

# A master that root runs, and a user of its app who may write to the folders of its logs, pid file and sockets: what he has laid out
# there gets him nothing.
RSpec.describe "A master of root's", if: Process.uid.zero? && RUBY_PLATFORM.include?("linux"), once: "files of the master" do
  include ReexecHelpers

  let(:user) { Etc.getpwnam("nobody") }
  let(:top) { Dir.mktmpdir("fastrack-root").tap { |dir| FileUtils.chmod(0o755, dir) } }
  let(:log) { File.join(folder("app"), "log").tap { |path| Dir.mkdir(path) && File.chown(user.uid, user.gid, path) } }
  let(:vault) { File.join(top, "vault").tap { |path| Dir.mkdir(path, 0o755) } }
  # What the user wants.
  let(:secret) { File.join(vault, "secret").tap { |path| File.write(path, "root's", perm: 0o600) } }

  # No server that still runs shall make files there.
  after { |one| [(Server.show_logs if one.exception), Server.stop_all(:example), FileUtils.remove_entry(top)] }

  # One that the user owns.
  def folder(name) = File.join(top, name).tap { |path| Dir.mkdir(path) && File.chown(user.uid, user.gid, path) }

  # A link, of the user's.
  def link(target, path)
    FileUtils.mv(path, "#{path}.moved") if File.exist?(path)
    File.symlink(target, path)
    File.lchown(user.uid, user.gid, path)
  end

  def expect_untouched
    expect([File.read(secret), File.stat(secret).uid, File.stat(secret).mode & 0o7777, File.stat(vault).mode & 0o7777, Dir.children(vault)])
      .to eq(["root's", 0, 0o600, 0o755, ["secret"]])
  end

  def refusal = "permission denied to user nobody, who can change where the path leads"

  # What this block raises in a thread that has the ids of the app's user, as the master does it.
  def as_careful_root
    Fastrack::SafeFile.user = Fastrack::UserGroup.find("nobody")
    yield
  ensure
    Fastrack::SafeFile.user = nil
  end

  # Files that the server's processes have as stderr.
  def logs_of(server) = [server.pid, *server.workers].map { |pid| ProcessTable.descriptors(pid)[2] }

  # Logs of the server's and of the app's.
  def serve(options: {}, **keywords)
    start(ru: <<~RUBY, options: { User: "nobody", MaxWorkers: 1 }.merge(options), **keywords)
      require "logger"
      logger = Logger.new("#{log}/production.log")
      File.chown(#{user.uid}, #{user.gid}, "#{log}/production.log")
      run ->(_env) { logger.info("a request") && [200, {}, ["ok"]] }
    RUBY
  end

  # Its worker's thread has descriptor 50 lead to a file of the user's and to the secret in turn, and the log's name to descriptor 50.
  def serve_flipping
    serve(options: { StderrPath: "#{log}/err.log" }, config: <<~RUBY)
      after_fork do
        own = File.open("#{log}/own", "a")
        own.chown(#{user.uid}, #{user.gid})
        secret = File.open("#{secret}")
        File.unlink("#{log}/err.log")
        File.symlink("/proc/\#{Process.pid}/fd/50", "#{log}/err.log")
        File.lchown(#{user.uid}, #{user.gid}, "#{log}/err.log")
        own.fcntl(Fcntl::F_DUPFD, 50)
        Thread.new { loop { [own, secret].each { |file| Fastrack.replace_file(50, file.fileno) && Thread.pass } } }
      end
    RUBY
  end

  def fail_to_start(options) = Server.fail_to_start(ru: Rackups::PID, options: { User: "nobody" }.merge(options)).log.chomp

  describe "at USR1" do
    %w[err.log production.log].each do |name|
      { "a link to a file of root's" => ->(path) { link(secret, path) },
        "a further name of a file of root's" => ->(path) { FileUtils.mv(path, "#{path}.moved") && File.link(secret, path) } }.each do |what, lay|
        it "D9 gives the user nothing for #{what} in the place of #{name}, says so, and serves" do
          secret
          server = serve(options: { StderrPath: "#{log}/err.log" })
          instance_exec("#{log}/#{name}", &lay)
          server.signal(:USR1)
          kept = "#{log}/err.log#{".moved" if name == "err.log"}"
          eventually { File.read(kept).include?("cannot reopen #{log}/#{name}: #{refusal}") }
          expect_untouched
          expect(server.get.body).to eq("ok")
        end
      end
    end

    it "D9 makes no file in a folder that the user has put in the place of the log's" do
      secret
      server = serve(options: { StderrPath: "#{log}/err.log" })
      link(vault, log)
      server.signal(:USR1)
      eventually { File.read("#{log}.moved/err.log").include?("cannot reopen #{log}/err.log: #{refusal}") }
      expect_untouched
    end

    it "D9 does not give the user a file of root's that he has moved there" do
      server = serve(options: { StderrPath: "#{log}/err.log" })
      key = File.join(folder("config"), "key").tap { |path| File.write(path, "a key", perm: 0o600) }
      FileUtils.mv("#{log}/err.log", "#{log}/err.log.moved")
      File.rename(key, "#{log}/err.log")
      server.signal(:USR1)
      eventually { File.read("#{log}/err.log.moved").include?("cannot reopen #{log}/err.log: #{refusal}") }
      expect([File.read("#{log}/err.log"), File.stat("#{log}/err.log").uid, File.stat("#{log}/err.log").mode & 0o7777]).to eq(["a key", 0, 0o600])
    end

    it "D9 opens no file of root's through a link to a descriptor that the worker exchanges meanwhile" do
      # Readable to the user: a worker has it open, and may not write to it.
      secret.then { |path| File.chmod(0o644, path) }
      server = serve_flipping
      # The user wins within a few dozen attempts where root checks a file first, and opens it then.
      300.times do
        server.signal(:USR1)
        server.get
        expect(logs_of(server)).not_to include(secret)
      end
      expect(File.read(secret)).to eq("root's")
    end

    it "C1 makes the user's new log by way of links of root's, and of one of his own to a folder of his" do
      File.symlink(folder("shared"), "#{top}/current")
      link("../../shared", "#{log}/mine")
      server = serve(options: { StderrPath: "#{top}/current/err.log", AccessLog: "#{log}/mine/access.log" })
      logs = %w[err.log access.log].map { |name| "#{top}/shared/#{name}" }
      logs.each { |path| File.rename(path, "#{path}.1") }
      server.signal(:USR1)
      eventually { logs.all? { |path| File.exist?(path) && File.stat(path).uid == user.uid } }
      eventually { server.get && File.read(logs.last).include?("GET / ") }
    end
  end

  describe "at its start" do
    { StderrPath: "option StderrPath: cannot write to", AccessLog: "option AccessLog: cannot write to" }.each do |option, text|
      it "D9 refuses a link of the user's to what is not his as #{option}" do
        link(secret, "#{log}/err.log")
        expect(fail_to_start(option => "#{log}/err.log")).to eq("fastrack: #{text} #{log}/err.log: #{refusal}")
        link(vault, "#{log}/sub")
        expect(fail_to_start(option => "#{log}/sub/err.log")).to eq("fastrack: #{text} #{log}/sub/err.log: #{refusal}")
        expect_untouched
      end
    end

    it "D9 refuses a folder of root's that the user links to for a socket or a pid file" do
      secret
      link(vault, "#{log}/run")
      expect(fail_to_start(Path: "#{log}/run/app.sock")).to eq("fastrack: cannot listen on #{log}/run/app.sock: #{refusal}")
      expect(fail_to_start(Pid: "#{log}/run/app.pid", ControlPath: "none")).to eq("fastrack: pid file #{log}/run/app.pid: #{refusal}")
      server = start(options: { User: "nobody", ControlPath: "#{log}/run/control" })
      server.await_log("no monitor at #{log}/run/control: Permission denied")
      expect_untouched
    end

    it "D9 writes its pid by way of no link that waits for it, be it the pid file or the name that this has first" do
      link(secret, "#{log}/app.pid")
      # The shell's pid becomes the server's.
      server = start(options: { Pid: "#{log}/app.pid" }, wrapper: ["sh", "-c", %(ln -s #{secret} #{log}/app.pid.$$; exec "$@"), "sh"])
      expect([File.lstat("#{log}/app.pid").file?, File.read("#{log}/app.pid")]).to eq([true, "#{server.pid}\n"])
      expect([server.stop.exitstatus, Dir.children(log)]).to eq([0, []])
      expect_untouched
    end

    it "D9 writes the state file of a puma.rb anew, where there is a link" do
      link(secret, "#{log}/state")
      start(options: { User: "nobody", ConfigFile: File.join(top, "puma.rb").tap { |path| File.write(path, "workers 1\nstate_path '#{log}/state'\nbind 'tcp://127.0.0.1:0'") } })
      eventually { File.lstat("#{log}/state").file? && File.read("#{log}/state").include?("pid: ") }
      expect_untouched
    end

    it "C1 writes to what it has as stdout and stderr, and to /dev/null" do
      server = start(ru: "$stderr.puts 'loaded'\n#{Rackups::PID}", options: { User: "nobody", StdoutPath: "/dev/stdout", StderrPath: "/proc/self/fd/1", AccessLog: "/dev/null" })
      server.get
      expect(server.log).to include("Fastrack is ready", "loaded")
    end
  end

  describe "in a sticky folder" do
    # As /tmp: everybody may add to it, and move there what is in folders of his own.
    let(:shared) { File.join(top, "tmp").tap { |path| Dir.mkdir(path) && File.chmod(0o1777, path) } }

    # A file of root's that the user has moved there.
    def moved(name)
      path = File.join(shared, name)
      File.write(path, "a key", perm: 0o600)
      path
    end

    %i[StderrPath StdoutPath AccessLog].each do |option|
      it "D9 neither opens nor gives away a file of root's as #{option}" do
        path = moved("app.log")
        expect(fail_to_start(option => path)).to eq("fastrack: option #{option}: cannot write to #{path}: #{refusal}")
        expect([File.read(path), File.stat(path).uid, File.stat(path).mode & 0o7777]).to eq(["a key", 0, 0o600])
      end
    end

    it "D9 does not give it away at USR1 and HUP" do
      server = serve(options: { StderrPath: "#{shared}/err.log", AccessLog: "#{shared}/access.log" })
      %w[err.log access.log].each { |name| File.rename("#{shared}/#{name}", "#{shared}/#{name}.1") && moved(name) }
      server.signal(:USR1)
      eventually { %w[err access].all? { |name| File.read("#{shared}/err.log.1").include?("cannot reopen #{shared}/#{name}.log: #{refusal}") } }
      server.signal(:HUP)
      eventually { File.read("#{shared}/err.log.1").include?("cannot write to #{shared}/err.log: #{refusal}") }
      %w[err.log access.log].each { |name| expect([File.read("#{shared}/#{name}"), File.stat("#{shared}/#{name}").uid]).to eq(["a key", 0]) }
      expect(server.get.body).to eq("ok")
    end

    it "D9 does not replace it as a pid file, socket or state file" do
      path = moved("app")
      expect(fail_to_start(Pid: path)).to eq("fastrack: pid file #{path}: #{refusal}")
      expect(fail_to_start(Path: path)).to eq("fastrack: cannot listen on #{path}: it exists and is not a socket")
      server = start(options: { User: "nobody", ControlPath: path })
      server.await_log("no monitor at #{path}: it exists and is not a socket")
      as_careful_root { expect { Fastrack::SafeFile.write(path, "text", 0o666) }.to raise_error(SystemCallError) }
      expect([File.read(path), File.stat(path).uid]).to eq(["a key", 0])
    end
  end

  describe "by way of a link to a descriptor of a process of the user's" do
    # It has the secret open for reading, as number 50.
    before do
      secret
      File.chmod(0o644, secret)
      @holder = spawn("setpriv", "--reuid=nobody", "--clear-groups", "sleep", "600", 50 => secret, %i[out err] => File::NULL)
      eventually { File.read("/proc/#{@holder}/comm") == "sleep\n" }
      link("/proc/#{@holder}/fd/50", "#{log}/file")
    end

    after { Process.kill(:KILL, @holder) && Process.wait(@holder) }

    %i[StderrPath StdoutPath AccessLog].each do |option|
      it "D9 opens no file of root's as #{option}" do
        expect(fail_to_start(option => "#{log}/file")).to eq("fastrack: option #{option}: cannot write to #{log}/file: #{refusal}")
      end
    end

    it "D9 writes to no file of root's as pid file, state file, control socket or listener" do
      expect(fail_to_start(Path: "#{log}/file")).to eq("fastrack: cannot listen on #{log}/file: it exists and is not a socket")
      server = start(options: { User: "nobody", ControlPath: "#{log}/file" })
      server.await_log("no monitor at #{log}/file: it exists and is not a socket")
      as_careful_root { Fastrack::SafeFile.write("#{log}/file", "text", 0o666) }
      expect([File.lstat("#{log}/file").file?, File.stat("#{log}/file").uid]).to eq([true, user.uid])
      File.unlink("#{log}/file")
      link("/proc/#{@holder}/fd/50", "#{log}/file")
      server = start(options: { Pid: "#{log}/file", User: "nobody" })
      expect([File.lstat("#{log}/file").file?, File.read("#{log}/file")]).to eq([true, "#{server.master}\n"])
    end

    after { expect([File.read(secret), File.stat(secret).uid]).to eq(["root's", 0]) }
  end

  it "D9 leaves no socket in a folder of root's that the user puts in the place of its own just before bind(2)" do
    secret
    socket = Socket.new(:UNIX, :STREAM)
    path = "#{log}/run/app.sock"
    Dir.mkdir("#{log}/run")
    File.chown(user.uid, user.gid, "#{log}/run")
    exchange = -> { link(vault, "#{log}/run") }
    # The user is quick. This thread has the user's ids then, as an exchange by renameat2(2) needs none of root's.
    socket.define_singleton_method(:bind) { |address| exchange.call && super(address) }
    as_careful_root { expect { Fastrack::SafeFile.bind(socket, path, 0o777) }.to raise_error(Errno::EPERM, refusal) }
    expect_untouched
  end

  it "D9 lets the app's user neither see nor stop the server by a control socket in a folder of his" do
    server = start(options: { User: "nobody", ControlPath: "#{log}/control" })
    MonitorClient.new("#{log}/control").await("no monitor") { true }
    ask = ["curl", "-sS", "--unix-socket", "#{log}/control", "http://localhost/status.json"]
    expect(IO.popen(["setpriv", "--reuid=nobody", "--clear-groups", *ask], &:read)).to eq("ask as root or as the user that the master runs as\n")
    expect(IO.popen(ask, &:read)).to include("\"phase\"")
    server.stop
    expect(Dir.children(log)).to eq([])
  end

  it "does not start without the right to stop the user's processes" do
    skip "no setpriv" unless system("setpriv", "--version", out: File::NULL)
    server = Server.fail_to_start(ru: Rackups::PID, options: { User: "nobody" }, wrapper: %w[setpriv --bounding-set=-kill])
    expect([server.log, server.status.exitstatus]).to eq(["fastrack: option User: root cannot stop processes of nobody without the capability CAP_KILL\n", 1])
  end

  describe "with a usual layout" do
    # Root's folder, in which the user may not make files.
    let(:var) { File.join(Dir.mktmpdir("fastrack-root", "/var/lib").tap { |path| File.chmod(0o755, path) }, "var").tap { |path| Dir.mkdir(path, 0o755) } }

    after { Server.stop_all(:example) || FileUtils.remove_entry(File.dirname(var)) }

    it "C1 makes logs in a folder of root's, gives them to the user, and makes them anew after a rotation that creates none" do
      server = serve(options: { StderrPath: "#{var}/err.log", AccessLog: "#{var}/access.log" })
      logs = %w[err.log access.log].map { |name| "#{var}/#{name}" }
      logs.each { |path| File.rename(path, "#{path}.1") }
      server.signal(:USR1)
      eventually { logs.all? { |path| File.exist?(path) && File.stat(path).uid == user.uid } }
      eventually { server.get && File.read(logs.last).include?("GET / ") }
    end

    it "C1 writes to logs that logrotate has created with their owner, or has copied and truncated" do
      server = serve(options: { AccessLog: "#{var}/access.log" })
      eventually { server.get && File.read("#{var}/access.log").include?("GET / ") }
      File.rename("#{var}/access.log", "#{var}/access.log.1")
      File.write("#{var}/access.log", "")
      File.chown(user.uid, user.gid, "#{var}/access.log")
      server.signal(:USR1)
      eventually { server.get && File.read("#{var}/access.log").include?("GET / ") }
      File.truncate("#{var}/access.log", 0)
      eventually { server.get && File.read("#{var}/access.log").start_with?("127.0.0.1") }
    end

    it "C1 makes logs in a folder of root's below one that a group may write to, and the user is not in it" do
      File.chmod(0o775, var)
      File.chown(0, Etc.getgrnam("adm").gid, var)
      Dir.mkdir("#{var}/app", 0o755)
      serve(options: { StderrPath: "#{var}/app/err.log" })
      expect(File.stat("#{var}/app/err.log").uid).to eq(user.uid)
    end

    it "D9 acts as the user in a folder of root's whose group the user is in" do
      File.chmod(0o775, var)
      File.chown(0, user.gid, var)
      link(secret, "#{var}/err.log")
      expect(fail_to_start(StderrPath: "#{var}/err.log")).to eq("fastrack: option StderrPath: cannot write to #{var}/err.log: #{refusal}")
      expect_untouched
    end

    it "C1 makes pid file, control socket and listener in the user's folder below /run, as systemd's RuntimeDirectory= gives it" do
      run = folder("run")
      server = start(options: { User: "nobody", Pid: "#{run}/app.pid", Path: "#{run}/app.sock" }, unix: true)
      eventually { %w[app.pid app.sock app.control].all? { |name| File.exist?("#{run}/#{name}") && File.stat("#{run}/#{name}").uid == user.uid } }
      server.stop
      expect(Dir.children(run)).to eq([])
    end

    it "C1 makes them in a folder of root's, as root" do
      server = start(options: { User: "nobody", Pid: "#{var}/app.pid", Path: "#{var}/app.sock" }, unix: true)
      eventually { %w[app.pid app.sock app.control].all? { |name| File.exist?("#{var}/#{name}") && File.stat("#{var}/#{name}").uid.zero? } }
      server.stop
      expect(Dir.children(var)).to eq([])
    end

    it "C1 writes to stdout by a link of root's to /dev/stdout, as images of containers have it" do
      File.symlink("/dev/stdout", "#{var}/access.log")
      File.symlink("/dev/stderr", "#{var}/err.log")
      server = serve(options: { AccessLog: "#{var}/access.log", StderrPath: "#{var}/err.log" })
      eventually { server.get && server.log.include?("GET / ") }
      server.signal(:USR1)
      expect(server.get.body).to eq("ok")
    end
  end
end
