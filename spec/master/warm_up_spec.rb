# frozen_string_literal: true

require_relative "../spec_helper"
require "open3"

# `warm_up`: generation 0 asks the app for pages before it forks the workers.
RSpec.describe "A warm-up", exec: "generation 0 is a program of its own", once: "processes" do
  # Notes each request with its process and its env, and answers as the path says.
  app = <<~'RUBY'
    require "json"
    HERE = __dir__
    CONNECTIONS = []
    counts = Hash.new(0)
    run lambda { |env|
      facts = env.transform_values { |value| [String, TrueClass, FalseClass].include?(value.class) ? value : value.class.name }
      facts.update("pid" => $$, "input" => env["rack.input"].read, "cold" => (counts[env["PATH_INFO"]] += 1) == 1)
      File.write("#{HERE}/asked", JSON.generate(facts) + "\n", mode: "a")
      case env["PATH_INFO"]
      when "/500" then [500, {}, ["no"]]
      when "/raises" then raise "no such table"
      when "/exits" then exit 3
      when "/hangs" then sleep
      when "/clings"
        begin
          sleep
        rescue Exception
          retry
        end
      when "/login" then [302, { "location" => "/" }, []]
      when "/connects"
        CONNECTIONS << TCPSocket.new("127.0.0.1", Integer(File.read("#{HERE}/port"))) if CONNECTIONS.empty?
        [200, {}, ["connected"]]
      when "/leaves"
        Thread.current[:locale] = Thread.current.thread_variable_set(:locale, :de)
        [200, {}, ["left"]]
      else [200, { "content-type" => "text/plain" }, ["#{counts[env["PATH_INFO"]]} #{Thread.current[:locale].inspect} #{Thread.current.thread_variable_get(:locale).inspect}"]]
      end
    }
  RUBY

  define_method(:serving) do |config, starts = :ready, **keywords|
    Server.public_send(starts, ru: app, fastrack: true, config: config, options: { MaxWorkers: 1, **keywords.delete(:options).to_h }, **keywords)
  end

  # Requests that the app has had, as its env.
  def asked(server, path = nil)
    all = server.lines_of("asked").map { |line| JSON.parse(line) }
    path ? all.select { |env| env["PATH_INFO"] == path } : all
  end

  def warm_up_line(server) = server.await_log(/^fastrack: warm-up: .*/) && server.log[/^fastrack: (warm-up: .*)/, 1]

  # @return [Array(String, Integer)] output and status of the command
  def command(server, *words)
    command = [Server::CLEAN_ENVIRONMENT, RbConfig.ruby, "-w", Server::COMMAND, *words]
    Open3.capture2e(*command, chdir: server.dir, stdin_data: "").then { |output, status| [output, status.exitstatus] }
  end

  # Requests of the warm-up in generation 0.
  def warm(server) = asked(server).select { |env| env["fastrack.warm_up"] && server.molds.include?(env["pid"]) }

  it "asks for each path in generation 0, before any worker, so that no client's request is the app's first" do
    server = serving('warm_up "/", "/posts?page=2"', options: { MaxWorkers: 2 })
    expect(server.get("/posts").body.to_i).to be > 30
    expect(warm(server).map { |env| env["REQUEST_URI"] }.tally).to match("/" => be > 30, "/posts?page=2" => be > 30)
    expect(warm_up_line(server)).to match(/\Awarm-up: 2 paths, #{warm(server).size} requests in \d\.\d s\z/)
    expect(asked(server).select { |env| env["cold"] } - warm(server)).to eq([])
  end

  it "asks once more in each worker, for what a worker has of its own, before the worker has clients" do
    server = serving('warm_up "/", "/posts?page=2", "/raises"', options: { MaxWorkers: 2 })
    server.get
    theirs = asked(server).reject { |env| server.molds.include?(env["pid"]) }.group_by { |env| env["pid"] }.transform_values { |envs| envs.map { |env| env.values_at("REQUEST_URI", "fastrack.warm_up") } }
    expect(theirs.keys).to match_array(server.workers)
    expect(theirs.values).to all(start_with(["/", true], ["/posts?page=2", true]))
    expect(theirs.values.flatten(1).size).to eq(5)
  end

  it "gives the app the env that a client's request has, and fastrack.warm_up" do
    server = serving('warm_up "/", rounds: 1, host: "example.com:8080", headers: { "Accept-Language" => "de" }')
    server.request("GET", "/", { "Host" => "example.com:8080", "User-Agent" => "a", "Accept" => "b", "Accept-Encoding" => "c", "Accept-Language" => "de" })
    ours, _, theirs = eventually { asked(server).then { |all| all if all.size == 3 } }
    own = %w[pid cold REMOTE_PORT HTTP_USER_AGENT HTTP_ACCEPT HTTP_ACCEPT_ENCODING fastrack.queue_time fastrack.timeout]
    expect(ours.except(*own)).to eq({ **theirs.except(*own), "fastrack.warm_up" => true })
    expect(ours.keys).to match_array([*theirs.keys, "fastrack.warm_up"])
  end

  it "comes by https, to the app's host, where the settings say so" do
    server = serving('warm_up "/", rounds: 1, host: "example.com", https: true')
    expect(asked(server).first).to include("rack.url_scheme" => "https", "SERVER_PORT" => "443", "SERVER_NAME" => "example.com", "HTTP_X_FORWARDED_PROTO" => "https")
  end

  it "gives a block a client, which keeps cookies" do
    server = serving(<<~'RUBY')
      warm_up do |client|
        answer = client.post("/session", body: "user=1", headers: { "Cookie" => "a=1" })
        File.write("answer", [answer.status, answer.headers["content-type"], answer.body.to_i].join(" "))
      end
    RUBY
    expect(asked(server).first).to include("REQUEST_METHOD" => "POST", "input" => "user=1", "HTTP_COOKIE" => "a=1", "CONTENT_LENGTH" => "6")
    expect(File.read(server.file("answer"))).to eq("200 text/plain 1")
  end

  failures = {
    "/500" => "1 answered 500 (/500)", "/raises" => "1 answered 500 (/raises)", "/exits" => "1 answered 500 (/exits)",
    "/hangs" => "1 had no answer (/hangs), stopped after 0.3 s", "/clings" => "1 had no answer (/clings), stopped after 0.3 s"
  }
  failures.each do |path, words|
    it "says that #{path} fails, and the server serves nevertheless" do
      server = serving(%(warm_up "#{path}"\nwarm_up_time "300ms"))
      expect(warm_up_line(server)).to match(/\Awarm-up: 1 path, 1 request in \d\.\d s, #{Regexp.escape(words)}\z/)
      expect(server.get.status).to eq(200)
      expect(warm(server).size).to eq(1)
    end

    it "that is required and has #{path} is no start" do
      server = serving(%(warm_up "#{path}"\nwarm_up_time "300ms"\nwarm_up_required true), :fail_to_start)
      expect([server.status.exitstatus, server.log]).to match([1, include("fastrack: warm-up: #{words}\n")])
    end
  end

  it "says where a page redirects, and goes on although it is required" do
    server = serving(%(warm_up "/login", rounds: 2\nwarm_up_required true))
    expect(warm_up_line(server)).to match(/1 path, 2 requests in \S+ s, 2 answered 302 \(\/login\)\z/)
  end

  it "takes no longer than warm_up_time, however slow the app is" do
    server = serving(%(warm_up "/", rounds: 10_000\nwarm_up_time "100ms"\n))
    expect(warm_up_line(server)).to match(/, (?:1 had no answer \(\/\), )?stopped after 0.1 s\z/)
    expect(warm(server).size).to be < 10_000
  end

  it "leaves nothing in the thread of a worker's requests" do
    server = serving('warm_up "/leaves"')
    expect(server.get.body).to eq("1 nil nil")
  end

  describe "whose app opens a connection" do
    peer = nil

    before { peer = TCPServer.new("127.0.0.1", 0) }
    after { peer.close }

    define_method(:port) { { "port" => peer.local_address.ip_port.to_s } }

    it "names it before workers share it, and what to do" do
      server = serving('warm_up "/connects"', files: port)
      server.await_log("fastrack: generation 0 has 1 connection that its workers would share: 127.0.0.1:#{port["port"]}; close it in before_fork")
    end

    it "is content where before_fork closes it" do
      server = serving(%(warm_up "/connects"\nbefore_fork { CONNECTIONS.each(&:close) }\nwarm_up_required :connections), files: port)
      warm_up_line(server)
      expect(server.log).not_to include("would share")
    end

    it "and that is required without connections is no start" do
      server = serving(%(warm_up "/connects"\nwarm_up_required :connections), :fail_to_start, files: port)
      expect([server.status.exitstatus, server.log]).to match([1, include("fastrack: warm-up: generation 0 has 1 connection that its workers would share: 127.0.0.1:")])
    end
  end

  it "closes all connections of Active Record, of each role", linux: "the monitor, which the command asks" do
    server = serving(%(warm_up "/", rounds: 1\ncontrol_path "control"), files: { "active_record.rb" => <<~'RUBY' })
      module ActiveRecord
        Pool = Struct.new(:name) { def disconnect! = File.write("closed", "#{name} #{$$}\n", mode: "a") }
        def self.gem_version = Gem::Version.new("7.1")

        class Base
          def self.connection_handler = self
          def self.connection_pool_list(role) = role == :all ? [Pool.new("writing"), Pool.new("reading")] : []
        end
      end
    RUBY
    # The first code has no Active Record.
    expect(server.lines_of("closed")).to eq([])
    server.write("config.ru", "require './active_record'\n#{app}")
    expect(command(server, "reload", "--control", "control").last).to eq(0)
    expect(server.lines_of("closed")).to eq(%w[writing reading].map { |name| "#{name} #{server.molds.first}" })
  end

  it "of new code that fails is rolled back before the code serves anybody, and the command says why", linux: "the monitor, which the command asks" do
    server = serving(%(warm_up "/"\nwarm_up_required true\ncontrol_path "control"), options: { MaxRequestPerChild: 0 })
    before = [server.workers, server.molds]
    clients = ClientLoop.run(server, paths: ["/"] * 4, kept: true) do
      server.write("config.ru", "run ->(_env) { [500, {}, ['broken']] }")
      expect(command(server, "reload", "--control", "control")).to match([/HUP has failed: the old code serves on .*: warm-up: 1 answered 500 \(\/\)$/, 1])
    end
    expect([clients.failures, clients.bodies.grep(/broken/), server.workers, server.molds]).to eq([[], [], *before])
    server.write("config.ru", app)
    expect(command(server, "reload", "--control", "control").last).to eq(0)
  end

  it "forks all later workers from the warm process, too" do
    server = serving('warm_up "/"', options: { MaxRequestPerChild: 2 })
    eventually { server.get && asked(server).reject { |env| env["fastrack.warm_up"] }.map { |env| env["pid"] }.uniq.size > 2 }
    expect(asked(server, "/").count { |env| env["cold"] }).to eq(1)
  end

  it "has no effect where each worker loads the app, and the log says so" do
    server = serving(%(warm_up "/"\npreload_app false))
    server.await_log(/warm_up has no effect: preload_app is false/)
    expect(asked(server)).to eq([])
  end

  it "runs in generation 0 of a server that rackup has started, never in the master" do
    server = Server.ready(ru: app, config: 'warm_up "/"', options: { MaxWorkers: 1 })
    expect(asked(server).map { |env| env["pid"] }.uniq).to eq(server.molds + server.workers)
  end

  it "by `fastrack check --warm-up` says what the pages answer, and fails with them" do
    server = serving('warm_up "/", rounds: 3')
    expect(command(server, "check", "--warm-up", "-c", "fastrack.rb")).to match([/^app: loaded\nwarm-up: 1 path, 3 requests in \S+ s$/, 0])
    server.write("fastrack.rb", 'warm_up "/500"')
    expect(command(server, "check", "--warm-up", "-c", "fastrack.rb")).to match([/^fastrack: warm-up: 1 answered 500 \(\/500\)$/, 1])
  end

  refusals = {
    'warm_up "posts"' => "must be paths, such as / or /posts?page=2", 'warm_up "/", rounds: 0' => "must be a whole number from 1 to 10000",
    'warm_up "/", host: "a b"' => "must have a host such as example.com", 'warm_up("/") { }' => "takes paths or a block, not both",
    'warm_up "/", round: 1' => "has no setting round"
  }
  refusals.each do |line, reason|
    it "of `#{line}` is refused" do
      server = serving(line, :fail_to_start)
      expect(server.log).to match(/^fastrack: .*fastrack\.rb:1: .*#{Regexp.escape(reason)}/)
    end
  end
end
