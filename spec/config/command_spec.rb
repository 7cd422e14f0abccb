# frozen_string_literal: true

require_relative "../../lib/fastrack/version"
require "rack"

RSpec.describe "The fastrack command", once: "options and their defaults are the same in every Ruby" do
  include CommandFolder

  it "says its version" do
    expect(fastrack("--version")).to eq(["Fastrack #{Fastrack::VERSION} (Ruby #{RUBY_VERSION}, Rack #{Rack.release})\n", 0])
  end

  { %w[--wrong] => "invalid option: --wrong", %w[-w many] => "-w must be a whole number, 1 or more; got \"many\"",
    %w[-b app] => "-b must be a port, host:port, [IPv6]:port or a path; got \"app\"",
    %w[-b ssl://a:1?cert=b] => "-b needs a key for each cert: ssl://0.0.0.0:443?cert=a.pem&key=a.key; got \"ssl://a:1?cert=b\"",
    %w[-O MaxWorker=1] => "unknown option MaxWorker; did you mean MaxWorkers?",
    %w[-O MaxWorkers] => "-O MaxWorkers must be a whole number, 1 or more; no value was given",
    %w[a.ru b.ru] => "only one app: b.ru is not expected", %w[no.ru] => "there is no no.ru",
    %w[-c no.rb] => "ConfigFile no.rb: no such file or directory" }.each do |arguments, message|
    it "ends with one line and status 1 for #{arguments.join(" ")}" do
      output, status = fastrack(*arguments, "-O", "Port=0")
      expect([output.lines.last, status]).to eq(["fastrack: #{message}\n", 1])
    end
  end

  it "needs no arguments: config.ru, and config/fastrack.rb if it is there" do
    write("config/fastrack.rb", "host '127.0.0.1'\nport 0\nmax_workers 1")
    server = serve
    expect(server.log.lines.first).to eq("loading from config_file:config/fastrack.rb\n")
    expect(server.await_workers(1)).to eq([server.get.body.to_i])
  end

  it "listens where -b says, as often as it is there, and -p" do
    server = ready(*%w[-b tcp://127.0.0.1:0 -l unix://app.sock -p 0 -w 1 -e production])
    expect(server.log.scan(/Listening on (\S+)/).flatten).to match([/\A127\.0\.0\.1:\d+\z/, ":unix:app.sock", /\A0\.0\.0\.0:\d+\z/])
  end

  it "has what was typed go before the file" do
    write("other.rb", "listen '/no/such/app.sock'\nmax_workers 3")
    server = serve(*%w[-c other.rb -o 127.0.0.1 -p 0 -w 1])
    expect([server.await_workers(1).size, server.get.status]).to eq([1, 200])
    server.signal(:HUP)
    server.await_log("loading from", 2).await_workers(1)
    expect(server.get.status).to eq(200)
  end

  it "C2 loads the app from working_directory, and on HUP reads the file that was named when it started" do
    write("app/config.ru", "run ->(_env) { [200, {}, [Dir.pwd]] }")
    write("app/other.rb", "max_workers 3")
    write("other.rb", "working_directory 'app'\nmax_workers 1")
    server = serve(*%w[-c other.rb -b 127.0.0.1:0])
    expect([server.get.body, server.await_workers(1).size]).to eq(["#{@dir}/app", 1])
    write("other.rb", "working_directory 'app'\nmax_workers 2")
    server.signal(:HUP)
    expect(server.await_workers(2).size).to eq(2)
  end

  it "-e sets RACK_ENV and RAILS_ENV; without it one of them sets the other, and without any both are development" do
    write("config.ru", "run ->(_env) { [200, {}, [ENV.values_at('RACK_ENV', 'RAILS_ENV').join(' ')]] }\nsrand")
    environment = ->(*arguments, **env) { serve("-b", "127.0.0.1:0", "-w", "1", *arguments, env: env.transform_keys(&:to_s)).get.body }
    expect(environment.call("-e", "production", RACK_ENV: "staging", RAILS_ENV: "test")).to eq("production production")
    # A set of rackup's middleware is no environment of Rails'.
    expect(environment.call("-e", "deployment", RAILS_ENV: "test")).to eq("deployment test")
    expect(environment.call(RACK_ENV: "staging", RAILS_ENV: "test")).to eq("staging test")
    expect([environment.call(RAILS_ENV: "test"), environment.call(RACK_ENV: "test")]).to eq(["test test"] * 2)
    expect(environment.call).to eq("development development")
  end

  # A response that Rack::Lint of every Rack refuses.
  { "rackup's in development: errors are shown and requests are logged" => ["development", "", true],
    "none with default_middleware false" => ["development", "default_middleware false", false],
    "none in production" => ["production", "", false] }.each do |what, (environment, config, there)|
    it "has middleware that is #{what}" do
      write("config.ru", "run ->(_env) { ['odd', {}, []] }")
      write("config/fastrack.rb", config)
      server = serve("-b", "127.0.0.1:0", "-w", "1", "-e", environment)
      expect(server.get.body.include?("Rack::Lint::LintError")).to be(there)
      # The line is written once the response has left.
      line = %r{"GET / HTTP/1.1" 500}
      there ? server.await_log(line) : expect(server.log).not_to(match(line))
    end
  end

  describe "with preload_app" do
    { "false, the app is loaded in each worker, and HUP gives new code" => %w[-O PreloadApp=false],
      "true, HUP gives new code" => [] }.each do |what, arguments|
      it "C2 #{what}" do
        version = ->(text) { write("config.ru", "run ->(_env) { [200, {}, ['#{text}']] }") }
        version.call("old")
        server = serve(*%w[-b 127.0.0.1:0 -w 1], *arguments)
        before = server.await_workers(1)
        first = server.get.body
        version.call("new")
        server.renew(before)
        expect([first, server.get.body]).to eq(%w[old new])
      end
    end

    it "C2 false, rackup says that it does not apply" do
      server = Server.start(ru: Rackups::PID, options: { PreloadApp: "no", MaxWorkers: 1 })
      expect(server.log).to include("fastrack: option PreloadApp has no effect: the app is already loaded; use `fastrack` to load it in each worker\n")
      expect(server.get.status).to eq(200)
    end
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
    def background(*arguments) = fastrack("-d", "-w", "1", "-P", "app.pid", "-b", "app.sock", *arguments)
    def ask = HttpResponse.ask(UNIXSocket.new("#{@dir}/app.sock"))
    def pid = eventually { lines("app.pid").first&.to_i }

    after do
      number = pid
      ProcessTable.alive?(number) && Process.kill(:TERM, number)
      eventually { ProcessTable.entry(number).nil? }
    end

    it "ends with 0 once the server listens, which then belongs to no terminal" do
      expect([background, ask.status]).to eq([["", 0], 200])
      fields = File.read("/proc/#{pid}/stat")[/\) (.*)/, 1].split
      # A session that is not ours, and whose leader is gone; no terminal (proc(5)).
      expect([pid, Process.getsid]).not_to include(Process.getsid(pid))
      expect([fields[4], Array.new(3) { |fd| File.readlink("/proc/#{pid}/fd/#{fd}") }]).to eq(["0", ["/dev/null"] * 3])
    end

    it "does not wait for processes that the app has forked off while it was loaded" do
      write("config.ru", <<~'RUBY')
        pid = fork { [$stdout, $stderr].each { |stream| stream.reopen(File::NULL) } && sleep }
        File.write("forked", pid.to_s)
        run ->(_env) { [200, {}, []] }
      RUBY
      expect([background, ProcessTable.alive?(lines("forked").first.to_i)]).to eq([["", 0], true])
    ensure
      Process.kill(:KILL, lines("forked").first.to_i) if lines("forked").any?
    end
  end

  { "a configuration that is wrong" => ["-O", "StderrPath=no/err.log"], "an app that does not load" => ["bad.ru"] }.each do |what, arguments|
    it "-d ends with 1 for #{what}, and says so" do
      write("bad.ru", "raise 'no luck'")
      output, status = fastrack("-d", "-w", "1", "-b", "app.sock", *arguments)
      expect([output, status]).to match([/no such file or directory|no luck/, 1])
    end
  end
end
