# frozen_string_literal: true

require_relative "../../lib/fastrack/configuration"
require_relative "../../lib/fastrack/master/process_setup"

RSpec.describe "The server's process", once: "settings of processes" do
  include Folder

  # Writes what a worker is into its response.
  let(:ru) { <<~RUBY }
    run lambda { |_env|
      $stdout.puts "an app's line"
      $stderr.puts "an app's complaint"
      File.write("made", "")
      [200, {}, [[Dir.pwd, Process.euid, Process.egid, Process.groups.sort].inspect]]
    }
  RUBY

  it "C2 runs in working_directory, whose name it keeps though it is a link" do
    Dir.mkdir("#{@dir}/release")
    File.symlink("release", "#{@dir}/current")
    server = Server.start(ru: ru, options: { MaxWorkers: 1 }, config: <<~RUBY)
      working_directory "#{@dir}/current"
      before_fork { File.write("pwd", ENV["PWD"]) }
    RUBY
    expect(server.get.body).to start_with("[\"#{File.realpath(@dir)}/release\"")
    expect(File.read("#{@dir}/release/pwd")).to eq("#{@dir}/current")
    server.stop
  end

  it "C2 stdout_path and stderr_path get what master and workers write, and add to what is there" do
    server = Server.launch(ru: ru, options: { MaxWorkers: 1 }, unix: true, config: "stdout_path 'out.log'\nstderr_path 'err.log'", files: { "out.log" => "before\n" })
    path = "#{server.dir}/server.sock"
    eventually { File.socket?(path) && server.lines_of("out.log").any? { |line| line.include?("Listening") } }
    HttpResponse.ask(UNIXSocket.new(path))
    expect(server.lines_of("out.log")).to include("before", /\AFastrack starts Listening on :unix:/, "an app's line")
    expect(server.lines_of("err.log")).to include("an app's complaint")
    expect(server.log).to eq("loading from config_file:#{server.dir}/fastrack.rb\n")
  end

  describe "after HUP" do
    let(:server) { Server.start(ru: ru, options: { MaxWorkers: 1 }, config: "stderr_path 'one.log'") }

    it "C2 has the log files that the ConfigFile names by then, in the master and in the new workers" do
      before = server.await_workers(1)
      server.reload("stderr_path 'two.log'")
      server.await_others(before)
      server.get
      expect(server.lines_of("two.log")).to include("an app's complaint")
      expect(["one.log", "two.log"].map { |file| File.identical?("/proc/#{server.master}/fd/2", "#{server.dir}/#{file}") }).to eq([false, true])
    end

    it "C2 has those that it had where the new ones cannot be, and says so there" do
      server.await_workers(1)
      server.reload("working_directory '/'\nstderr_path 'no/such/two.log'")
      eventually { server.lines_of("one.log").any? { |line| line.include?("cannot write to /no/such/two.log") } }
      expect([File.readlink("/proc/#{server.master}/cwd"), server.get.status]).to eq([File.realpath(server.dir), 200])
    end
  end

  it "C2 umask is that of the master and its workers, and no business of the socket's" do
    server = Server.start(ru: ru, unix: true, options: { Umask: "0077", MaxWorkers: 1 })
    server.get
    expect(format("%o", File.stat("#{server.dir}/made").mode & 0o777)).to eq("600")
    expect(format("%o", File.stat(server.path).mode & 0o777)).to eq("777")
  end

  it "C2 the workers may have as many files open as the system allows, and the log says when that is few" do
    server = Server.start(ru: "run ->(_env) { [200, {}, [Process.getrlimit(:NOFILE).inspect]] }",
                          wrapper: ["sh", "-c", 'ulimit -Sn 200 && ulimit -Hn 2000 && exec "$@"', "sh"])
    expect(server.get.body).to eq("[2000, 2000]")
    expect(server.whole_log.scan(/fastrack: only 2000 open files are allowed \(RLIMIT_NOFILE\), and each client takes one$/).size).to eq(1)
  end

  it "C2 nothing is said of files where there are enough", if: Process.getrlimit(:NOFILE).last >= 10_000 do
    expect(Server.start(ru: "run ->(_env) { [200, {}, []] }").tap(&:get).whole_log).not_to include("open files")
  end

  describe "as root", if: Process.uid.zero? do
    let(:nobody) { Etc.getpwnam("nobody") }

    it "C2 has workers that are the user's before after_fork runs, and a master that is root's" do
      # The log is in a folder of the user's.
      server = Server.start(ru: ru.sub(/^ +File.write.*\n/, ""), options: { MaxWorkers: 1 }, wrapper: ["sh", "-c", 'chown nobody . && exec "$@"', "sh"], config: <<~RUBY)
        user "nobody"
        stderr_path "err.log"
        after_fork { File.write("hook", Process.euid.to_s) }
      RUBY
      expect(server.get.body).to end_with("#{nobody.uid}, #{nobody.gid}, [#{nobody.gid}]]")
      expect([File.read("#{server.dir}/hook"), File.stat("/proc/#{server.master}").uid]).to eq([nobody.uid.to_s, 0])
      expect(File.stat("#{server.dir}/err.log").uid).to eq(nobody.uid)
    end

    it "C2 the group may be another, and come from the command line" do
      group = Etc.getgrnam("daemon")
      server = Server.start(ru: ru.sub(/^ +File.write.*\n/, ""), options: { MaxWorkers: 1, User: "nobody:daemon" })
      expect(server.get.body).to include(", #{nobody.uid}, #{group.gid}, ")
    end
  end

  it "C2 a user that cannot be become is an error with its place" do
    File.write("#{@dir}/fastrack.rb", "user 'root'")
    configuration = Fastrack::Configuration.new({ ConfigFile: "#{@dir}/fastrack.rb" }, environment: {}, output: StringIO.new)
    allow(Process).to receive(:euid).and_return(1000)
    expect { Fastrack::ProcessSetup.new(configuration).apply }
      .to raise_error(Fastrack::ConfigurationError, "ConfigFile #{@dir}/fastrack.rb:1: user: only root may become root")
  end

  { "working_directory '/no/such'" => "working_directory: cannot enter /no/such: no such file or directory",
    "stdout_path 'log/out.log'" => "stdout_path: cannot write to log/out.log: no such file or directory",
    "stderr_path '.'" => /\Afastrack: ConfigFile fastrack.rb:2: stderr_path: cannot write to .*: is a directory\z/ }.each do |text, message|
    it "C2 #{text} is one line with its place, and nothing is bound" do
      server = Server.fail_to_start(ru: Rackups::PID, unix: true, config: "\n#{text}")
      expect([server.status.exitstatus, server.file?("server.sock")]).to eq([1, false])
      expected = message.is_a?(Regexp) ? message : "fastrack: ConfigFile fastrack.rb:2: #{message}"
      expect(server.log.lines.last.chomp.gsub("#{server.dir}/", "")).to match(expected)
    end
  end

  it "C2 on the command line, the option is named" do
    server = Server.fail_to_start(ru: Rackups::PID, options: { StderrPath: "/no/such/err.log" })
    expect(server.log).to eq("fastrack: option StderrPath: cannot write to /no/such/err.log: no such file or directory\n")
  end
end
