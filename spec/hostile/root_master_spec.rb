# frozen_string_literal: true

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

  def refusal(path) = "root does not follow #{path}, a link of user #{user.uid} to what is not theirs"

  # Logs of the server's and of the app's.
  def serve(options: {}, **keywords)
    start(ru: <<~RUBY, options: { User: "nobody", MaxWorkers: 1 }.merge(options), **keywords)
      require "logger"
      logger = Logger.new("#{log}/production.log")
      File.chown(#{user.uid}, #{user.gid}, "#{log}/production.log")
      run ->(_env) { logger.info("a request") && [200, {}, ["ok"]] }
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
          eventually { File.read(kept).match?(%r{cannot reopen #{log}/#{name}: (root does not follow #{log}/#{name}, a link|.* is a further name)}) }
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
      eventually { File.read("#{log}.moved/err.log").include?("cannot reopen #{log}/err.log: #{refusal(log)}") }
      expect_untouched
    end

    it "D9 does not give the user a file of root's that he has moved there" do
      server = serve(options: { StderrPath: "#{log}/err.log" })
      key = File.join(folder("config"), "key").tap { |path| File.write(path, "a key", perm: 0o600) }
      FileUtils.mv("#{log}/err.log", "#{log}/err.log.moved")
      File.rename(key, "#{log}/err.log")
      server.signal(:USR1)
      eventually { ProcessTable.descriptors(server.pid)[2] == "#{log}/err.log" }
      expect([File.stat("#{log}/err.log").uid, File.stat("#{log}/err.log").mode & 0o7777]).to eq([0, 0o600])
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
        expect(fail_to_start(option => "#{log}/err.log")).to eq("fastrack: #{text} #{log}/err.log: #{refusal("#{log}/err.log")}")
        link(vault, "#{log}/sub")
        expect(fail_to_start(option => "#{log}/sub/err.log")).to eq("fastrack: #{text} #{log}/sub/err.log: #{refusal("#{log}/sub")}")
        expect_untouched
      end
    end

    it "D9 refuses a folder of root's that the user links to for a socket or a pid file" do
      secret
      link(vault, "#{log}/run")
      expect(fail_to_start(Path: "#{log}/run/app.sock")).to eq("fastrack: cannot listen on #{log}/run/app.sock: #{refusal("#{log}/run")}")
      expect(fail_to_start(Pid: "#{log}/run/app.pid", ControlPath: "none")).to eq("fastrack: pid file #{log}/run/app.pid: #{refusal("#{log}/run")}")
      server = start(options: { User: "nobody", ControlPath: "#{log}/run/control" })
      server.await_log("no monitor at #{log}/run/control: #{refusal("#{log}/run")}")
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
      start(options: { ConfigFile: File.join(top, "puma.rb").tap { |path| File.write(path, "workers 1\nstate_path '#{log}/state'\nbind 'tcp://127.0.0.1:0'") } })
      eventually { File.lstat("#{log}/state").file? && File.read("#{log}/state").include?("pid: ") }
      expect_untouched
    end

    it "C1 writes to what it has as stdout and stderr, and to /dev/null" do
      server = start(ru: "$stderr.puts 'loaded'\n#{Rackups::PID}", options: { User: "nobody", StdoutPath: "/dev/stdout", StderrPath: "/proc/self/fd/1", AccessLog: "/dev/null" })
      server.get
      expect(server.log).to include("Fastrack is ready", "loaded")
    end
  end

  it "D9 changes the mode of nothing but the socket that it has bound" do
    socket = Socket.new(:UNIX, :STREAM)
    path = "#{log}/app.sock"
    wanted = secret
    # The user is quick.
    socket.define_singleton_method(:bind) { |address| super(address).tap { File.unlink(path) && File.symlink(wanted, path) } }
    expect { Fastrack::SafeFile.bind(socket, path, 0o777) }.to raise_error(Errno::EPERM, "somebody has exchanged the socket")
    expect_untouched
  end
end
