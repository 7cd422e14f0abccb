# frozen_string_literal: true

require_relative "../../lib/fastrack"
require_relative "../../lib/fastrack/configuration"
require "stringio"

RSpec.describe "Words of Puma's in a config/fastrack.rb" do
  include CommandFolder

  def configure(text, environment: { "WEB_CONCURRENCY" => "1" }, given: { user_supplied_options: [] })
    write("config/fastrack.rb", text)
    Dir.chdir(@dir) { Fastrack::Configuration.new(given, environment: environment, output: StringIO.new, warnings: @said = StringIO.new) }
  end

  { "workers 3" => { max_workers: 3 }, "workers 2\nmax_workers 4" => { max_workers: 4 }, "max_workers 4\nworkers 2" => { max_workers: 2 },
    "threads 2, 7" => { max_threads: 7 }, "preload_app! false" => { preload_app: false },
    "bind 'tcp://127.0.0.1:1'\nlisten '/run/a.sock'" => { addresses: ["127.0.0.1:1", "/run/a.sock"] },
    "pidfile 'a.pid'\nworker_shutdown_timeout 7" => { pid: "a.pid", graceful_timeout: 7 },
    "persistent_timeout 20\nstdout_redirect 'out', nil, true" => { keep_alive_timeout: 20, stdout_path: "out" } }.each do |text, values|
    it "#{text.inspect} sets what it says" do
      found = configure(text)
      expect(values.to_h { |word, _| [word, word == :addresses ? found.addresses.map(&:to_s) : found.public_send(word)] }).to eq(values)
      expect(@said.string).to eq("")
    end
  end

  { "port 3000\nbind 'ssl://0.0.0.0:443'\nlisten 80" => %w[0.0.0.0:443 0.0.0.0:80 0.0.0.0:3000],
    "listen 80\nport '80'" => %w[0.0.0.0:80], "host '127.0.0.1'\nport 3000\nlisten '/a.sock'" => %w[/a.sock 127.0.0.1:3000] }.each do |text, addresses|
    it "#{text.inspect} listens at each address, as a puma.rb does" do
      expect(configure(text).addresses.grep_v(Fastrack::Proxy::InnerAddress).map(&:to_s)).to eq(addresses)
      expect(@said.string).to eq("")
    end
  end

  it "a plugin whose config fails is one line with its name" do
    write("lib/puma/plugin/broken.rb", "require 'puma/plugin'\nPuma::Plugin.create { def config(_) = require('no/such/file') }")
    write("config/puma.rb", "plugin :broken")
    output, status = fastrack("check", env: { "RUBYLIB" => path("lib") })
    expect([output.lines.size, output, status])
      .to match([2, %r{^fastrack: ConfigFile config/puma\.rb: plugin :broken cannot be configured: cannot load such file -- no/such/file \(LoadError\)$}, 1])
  end

  it "leave this file's defaults, and its own words, as they are" do
    found = configure("workers 3\ntimeout 20\nbefore_fork { :ours }")
    expect([found.default_middleware, found.client_timeout, found.request_timeout, found.call_hook(:before_fork)]).to eq([true, 20.0, 60.0, :ours])
  end

  it "say what is not here, and are refused with their line, as in a puma.rb" do
    configure("workers 2\ndebug")
    expect(@said.string).to match(%r{\Afastrack: ConfigFile \S+/config/fastrack\.rb:2: debug has no effect})
    { "\nssl_bind 'a', 1, cert: 'b'" => /fastrack\.rb:2: ssl_bind needs a key for each cert/, "workers 'x'" => /fastrack\.rb:1: workers must be a whole number/,
      "after_fork { }\non_worker_boot { }" => /fastrack\.rb:1: after_fork and Puma's word for that hook cannot both be there/,
      "worker 3" => /unknown word worker\b/ }.each do |text, message|
      expect { configure(text) }.to raise_error(Fastrack::ConfigurationError, message)
    end
  end

  it "run plugins and hooks" do
    write("lib/puma/plugin/solid_queue.rb", <<~'RUBY')
      require "puma/plugin"
      Puma::Plugin.create { def start(launcher) = launcher.log_writer.log("queue runs: #{launcher.options[:solid_queue_mode]}") }
    RUBY
    write("config/fastrack.rb", <<~RUBY)
      listen "127.0.0.1:0"
      workers 2
      plugin :solid_queue
      solid_queue_mode :fork
      on_worker_boot { |nr| File.write("booted", "\#{nr}\\n", mode: "a") }
      on_booted { puts "all are there" }
    RUBY
    server = ready("-e", "production", env: { "SOLID_QUEUE_IN_PUMA" => "1", "RUBYLIB" => path("lib") })
    expect(server.log).to match(/^queue runs: fork$/)
    server.await_log("all are there")
    expect([lines("booted").sort, server.log.include?("SOLID_QUEUE_IN_PUMA")]).to eq([%w[0 1], false])
  end

  # What is said once, at the start, and by `fastrack check`.
  describe "and a config/puma.rb beside it" do
    before do
      write("config/puma.rb", "port 0\nworkers 2")
      write("config/fastrack.rb", "listen '127.0.0.1:0'\nworkers 3")
    end

    it "are read instead, which one line says" do
      server = ready("-e", "production")
      lines = server.log.lines.grep(/puma\.rb/)
      expect(lines).to eq(["fastrack: config/puma.rb is not read beside config/fastrack.rb; keep one of them\n"])
      server.reload
      server.await_ready(2)
      expect(server.log.lines.grep(/puma\.rb/)).to eq(lines)
      expect(fastrack("check").first).to include("\nconfig/puma.rb is not read beside config/fastrack.rb; keep one of them\n")
    end

    it "are not spoken of where a file is named, or Puma's alone is there" do
      expect(fastrack("check", "-c", "config/fastrack.rb").first).not_to include("not read")
      FileUtils.rm(path("config/fastrack.rb"))
      write("config/puma/production.rb", "port 0")
      expect(fastrack("check", "-e", "production").first).not_to include("not read")
    end

    it "without plugin :solid_queue leave SOLID_QUEUE_IN_PUMA without effect, which one line says" do
      line = /^(?:fastrack: )?SOLID_QUEUE_IN_PUMA is set, and nothing runs Solid Queue here/
      expect(ready(env: { "SOLID_QUEUE_IN_PUMA" => "1" }).log.scan(line).size).to eq(1)
      expect(fastrack("check").first).not_to match(line)
    end
  end
end
