# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../lib/fastrack/version"
require "fileutils"
require "open3"
require "rack"

RSpec.describe "The fastrack command" do
  around do |example|
    Dir.mktmpdir("fastrack-command") do |dir|
      @dir = File.realpath(dir)
      write("config.ru", Rackups::PID)
      example.run
    end
  end

  def write(name, text)
    path = File.join(@dir, name)
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, text)
  end

  # Runs it in the folder, to its end.
  #
  # @return [Array(String, Integer)] what it has written, and its exit status
  def fastrack(*arguments, env: {})
    output, status = Open3.capture2e(Server::CLEAN_ENVIRONMENT.merge(env), RbConfig.ruby, "-w", Server::COMMAND, *arguments,
                                     chdir: @dir, stdin_data: "")
    [output.gsub("#{@dir}/", ""), status.exitstatus]
  end

  it "says how it is used, and its version" do
    help, status = fastrack("--help")
    expect([help, status]).to match([/\AUsage: fastrack \[check\] \[options\] \[config.ru\]\n.*--daemonize/m, 0])
    expect(fastrack("--version")).to eq(["Fastrack #{Fastrack::VERSION} (Ruby #{RUBY_VERSION}, Rack #{Rack.release})\n", 0])
  end

  { %w[--wrong] => "invalid option: --wrong", %w[-w many] => "-w must be a whole number, 1 or more; got \"many\"",
    %w[-b app] => "-b must be a port, host:port, [IPv6]:port or a path; got \"app\"",
    %w[-b ssl://a:1] => "-b must be without TLS; terminate that in a proxy in front; got \"ssl://a:1\"",
    %w[-O MaxWorker=1] => "unknown option MaxWorker; did you mean MaxWorkers?",
    %w[-O MaxWorkers] => "-O MaxWorkers must be a whole number, 1 or more; no value was given",
    %w[a.ru b.ru] => "only one app, please: b.ru is not expected", %w[no.ru] => "there is no no.ru",
    %w[-c no.rb] => "ConfigFile no.rb: no such file or directory" }.each do |arguments, message|
    it "ends with one line and status 1 for #{arguments.join(" ")}" do
      output, status = fastrack(*arguments, "-O", "Port=0")
      expect([output.lines.last, status]).to eq(["fastrack: #{message}\n", 1])
    end
  end

  it "needs no arguments: config.ru, and config/fastrack.rb if it is there" do
    write("config/fastrack.rb", "host '127.0.0.1'\nport 0\nmax_workers 1")
    server = serve([])
    expect(server.log.lines.first).to eq("loading from config_file:config/fastrack.rb\n")
    expect(server.await_workers(1)).to eq([server.get.body.to_i])
  end

  # A server that is started in the folder with nothing but these arguments.
  def serve(arguments, env: {})
    Server.start(ru: "", command: ["sh", "-c", 'cd "$0" && exec "$@"', @dir, RbConfig.ruby, "-w", Server::COMMAND, *arguments], env: env)
  end

  it "listens where -b says, as often as it is there, and -p" do
    server = serve(%w[-b tcp://127.0.0.1:0 -l unix://app.sock -p 0 -w 1 -e production])
    expect(server.log.scan(/Listening on (\S+)/).flatten).to match([/\A127\.0\.0\.1:\d+\z/, ":unix:app.sock", /\A0\.0\.0\.0:\d+\z/])
  end

  it "listens for this machine alone in development" do
    expect(serve(%w[-p 0 -w 1]).log).to match(/Listening on localhost:\d+ Pid/)
    expect(serve(%w[-p 0 -w 1], env: { "RACK_ENV" => "production" }).log).to match(/Listening on 0\.0\.0\.0:\d+ Pid/)
  end

  it "has what was typed go before the file" do
    write("other.rb", "listen '/no/such/app.sock'\nmax_workers 3")
    server = serve(%w[-c other.rb -o 127.0.0.1 -p 0 -w 1])
    expect([server.await_workers(1).size, server.get.status]).to eq([1, 200])
    server.signal(:HUP)
    eventually { server.log.scan("loading from").size == 2 && server.workers.size == 1 }
    expect(server.get.status).to eq(200)
  end

  it "C2 loads the app from working_directory, and on HUP reads the file that was named when it started" do
    write("app/config.ru", "run ->(_env) { [200, {}, [Dir.pwd]] }")
    write("app/other.rb", "max_workers 3")
    write("other.rb", "working_directory 'app'\nmax_workers 1")
    server = serve(%w[-c other.rb -b 127.0.0.1:0])
    expect([server.get.body, server.await_workers(1).size]).to eq(["#{@dir}/app", 1])
    write("other.rb", "working_directory 'app'\nmax_workers 2")
    server.signal(:HUP)
    expect(server.await_workers(2).size).to eq(2)
  end

  describe "-e" do
    before { write("config.ru", "run ->(_env) { [200, {}, [ENV['RACK_ENV']]] }\nsrand") }

    def environment(*arguments, env: {})
      serve(["-b", "127.0.0.1:0", "-w", "1", *arguments], env: env).get.body
    end

    it "sets RACK_ENV, before RACK_ENV, RAILS_ENV and development" do
      variables = { "RACK_ENV" => "staging", "RAILS_ENV" => "test" }
      expect(environment("-e", "production", env: variables)).to eq("production")
      expect(environment(env: variables)).to eq("staging")
      expect(environment(env: { "RAILS_ENV" => "test" })).to eq("test")
    end
  end

  describe "middleware" do
    # A response that Rack::Lint of every Rack refuses.
    before { write("config.ru", "run ->(_env) { ['odd', {}, []] }") }

    def responses(environment)
      server = serve(["-b", "127.0.0.1:0", "-w", "1", "-e", environment])
      [server.get.body, server.log]
    end

    it "is rackup's in development: errors are shown and requests are logged" do
      body, log = responses("development")
      expect(body).to include("Rack::Lint::LintError")
      expect(log).to match(%r{"GET / HTTP/1.1" 500})
    end

    it "is none with default_middleware false" do
      write("config/fastrack.rb", "default_middleware false")
      body, log = responses("development")
      expect([body, log].join).not_to match(/Lint|"GET/)
    end

    it "is none in production" do
      body, log = responses("production")
      expect([body, log].join).not_to match(/Lint|"GET/)
    end
  end

  describe "with preload_app" do
    let(:version) { ->(text) { write("config.ru", "run ->(_env) { [200, {}, ['#{text}']] }") } }

    # The response of a worker of the next generation.
    def after_hup(server)
      before = server.await_workers(1)
      version.call("new")
      server.signal(:HUP)
      server.await_workers(1) { |found| found != before }
      server.get.body
    end

    it "C2 false, the app is loaded in each worker, so that HUP gives new code" do
      version.call("old")
      server = serve(%w[-b 127.0.0.1:0 -w 1 -O PreloadApp=false])
      expect([server.get.body, after_hup(server)]).to eq(%w[old new])
    end

    it "C2 true, HUP gives the code that the master has" do
      version.call("old")
      server = serve(%w[-b 127.0.0.1:0 -w 1])
      expect([server.get.body, after_hup(server)]).to eq(%w[old old])
    end

    it "C2 false, rackup says that it does not apply" do
      server = Server.start(ru: Rackups::PID, options: { PreloadApp: "no", MaxWorkers: 1 })
      expect(server.log).to include("fastrack: option PreloadApp has no effect: the app is already loaded; use `fastrack` to load it in each worker\n")
      expect(server.get.status).to eq(200)
    end
  end

  it "ends with the app's own exception when that does not load, and leaves no socket that listens" do
    write("config.ru", "raise 'no luck'")
    output, status = fastrack("-b", "app.sock")
    expect(output).to match(/config.ru:1:.*no luck \(RuntimeError\)/)
    expect(status).to eq(1)
    expect { UNIXSocket.new("#{@dir}/app.sock") }.to raise_error(SystemCallError)
  end

  describe "check" do
    it "is 0 for what would start, beside a server that runs, and listens nowhere" do
      TCPServer.open("127.0.0.1", 0) do |taken|
        write("config/fastrack.rb", "listen '127.0.0.1:#{taken.addr[1]}'\nlisten 'app.sock'\nworker_processes 3")
        output, status = fastrack("check")
        expect(output).to include("configuration: 3 workers at 127.0.0.1:#{taken.addr[1]}, app.sock\napp: loaded\n")
        expect([status, File.exist?("#{@dir}/app.sock")]).to eq([0, false])
      end
    end

    it "says when the system allows few open files" do
      command = ["sh", "-c", 'ulimit -n 500 && exec "$@"', "sh", RbConfig.ruby, "-w", Server::COMMAND, "check"]
      expect(Open3.capture2e(Server::CLEAN_ENVIRONMENT, *command, chdir: @dir).first)
        .to include("only 500 open files are allowed (RLIMIT_NOFILE), and each client takes one\n")
    end

    { "a word that there is not" => ["config/fastrack.rb", "\nworker_process 3", "ConfigFile config/fastrack.rb:2: unknown word worker_process"],
      "a folder that there is not" => ["config/fastrack.rb", "working_directory '/no/such'", "ConfigFile config/fastrack.rb:1: working_directory: cannot"],
      "an app that raises" => ["config.ru", "raise 'no luck'", "the app does not load: config.ru:1:"],
      "an app with a slip" => ["config.ru", "run(", "the app does not load: "],
      "an app that requires what there is not" => ["config.ru", "require 'no/such'", "the app does not load: "] }.each do |what, (file, text, message)|
      it "is 1 for #{what}, and says so" do
        write(file, text)
        output, status = fastrack("check")
        expect([output, status]).to match([/^fastrack: #{Regexp.escape(message)}/, 1])
      end
    end
  end

  describe "-d" do
    def background(*arguments)
      fastrack("-d", "-w", "1", "-P", "app.pid", "-b", "app.sock", *arguments)
    end

    def ask
      UNIXSocket.open("#{@dir}/app.sock") { |socket| socket.write("GET / HTTP/1.0\r\n\r\n") && socket.read }
    end

    def stop
      pid = File.read("#{@dir}/app.pid").to_i
      Process.kill(:TERM, pid)
      eventually { ProcessTable.entry(pid).nil? }
    end

    it "ends with 0 once the server listens, which then belongs to no terminal" do
      expect(background).to eq(["", 0])
      pid = eventually { File.read("#{@dir}/app.pid").to_i if File.exist?("#{@dir}/app.pid") }
      expect(ask).to start_with("HTTP/1.1 200")
      fields = File.read("/proc/#{pid}/stat")[/\) (.*)/, 1].split
      # A session that is not ours, and whose leader is gone; no terminal (proc(5)).
      expect([pid, Process.getsid]).not_to include(Process.getsid(pid))
      expect(fields[4]).to eq("0")
      expect(Array.new(3) { |fd| File.readlink("/proc/#{pid}/fd/#{fd}") }).to eq(["/dev/null"] * 3)
      stop
    end

    it "does not wait for processes that the app has forked off while it was loaded" do
      write("config.ru", <<~'RUBY')
        pid = fork { [$stdout, $stderr].each { |stream| stream.reopen(File::NULL) } && sleep(15) }
        File.write("forked", pid.to_s)
        run ->(_env) { [200, {}, []] }
      RUBY
      expect(background).to eq(["", 0])
      forked = File.read("#{@dir}/forked").to_i
      expect(ProcessTable.alive?(forked)).to be(true)
      stop
    ensure
      Process.kill(:KILL, File.read("#{@dir}/forked").to_i) if File.exist?("#{@dir}/forked")
    end

    it "writes to stdout_path and stderr_path from then on" do
      expect(background("-O", "StdoutPath=out.log", "-O", "StderrPath=err.log")).to eq(["", 0])
      eventually { File.read("#{@dir}/out.log").include?("Listening on :unix:app.sock") }
      stop
    end

    { "a configuration that is wrong" => ["-O", "StderrPath=no/err.log"], "an app that does not load" => ["bad.ru"] }.each do |what, arguments|
      it "ends with 1 for #{what}, and says so" do
        write("bad.ru", "raise 'no luck'")
        output, status = background(*arguments)
        expect([output, status]).to match([/no such file or directory|no luck/, 1])
      end
    end
  end
end
