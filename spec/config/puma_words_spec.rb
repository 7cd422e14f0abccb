# frozen_string_literal: true

require_relative "../../lib/fastrack"
require_relative "../../lib/fastrack/configuration"

RSpec.describe "The words of a puma.rb", once: "a file of words" do
  # All of dsl.rb's public methods, from Puma 5.6 to 8.0, and what older files have.
  words = %i[
    activate_control_app after_booted after_refork after_stopped after_worker_boot after_worker_fork after_worker_shutdown
    allow_underscore_headers app before_fork before_refork before_restart before_thread_exit before_thread_start before_worker_boot
    before_worker_fork before_worker_shutdown bind bind_to_activated_sockets clean_thread_locals clear_binds! cluster custom_logger
    daemonize debug default_host directory drain_on_shutdown early_hints enable_keep_alives environment extra_runtime_dependencies
    fiber_per_request first_data_timeout force_shutdown_after fork_worker get http_content_length_limit idle_timeout inject
    io_selector_backend load log_formatter log_requests lowlevel_error_handler max_fast_inline max_io_threads max_keep_alive
    mutate_stdout_and_stderr_to_sync_on_write nakayoshi_fork on_booted on_refork on_restart on_stopped on_thread_exit on_thread_start
    on_worker_boot on_worker_fork on_worker_shutdown out_of_band persistent_timeout pidfile plugin port preload_app! prune_bundler
    queue_requests quiet rack_url_scheme rackup raise_exception_on_sigterm restart_command set_default_host set_remote_address
    shutdown_debug silence_fork_callback_warning silence_single_worker_warning single ssl_bind state_path state_permission
    stdout_redirect supported_http_methods tag tcp_mode tcp_mode! threads wait_for_less_busy_worker worker_boot_timeout
    worker_check_interval worker_culling_strategy worker_shutdown_timeout worker_timeout workers
  ]

  around { |example| Dir.mktmpdir("fastrack-puma") { |dir| Dir.chdir(@dir = File.realpath(dir)) { example.run } } }

  let(:warnings) { StringIO.new }

  def write(name, text) = Folder.write(@dir, name, text)
  def configure(text, given = {}, environment = {})
    write("puma.rb", text)
    Fastrack::Configuration.new({ ConfigFile: "puma.rb", **given }, environment: environment, output: StringIO.new, warnings: warnings)
  end

  # What was said of each line.
  def said = warnings.string.lines.map { |line| line[/puma\.rb(?::\d+)?: (.*)/, 1] }

  # A word that sets options says nothing.
  { 'port "3000"' => { addresses: ["0.0.0.0:3000"] }, 'port 3000, "127.0.0.1"' => { addresses: ["127.0.0.1:3000"] },
    "port 3000, '::1'" => { addresses: ["[::1]:3000"] },
    "bind 'tcp://127.0.0.1:1?low_latency=false&backlog=9'\nbind 'unix:///run/a.sock?umask=0111'" => { addresses: ["127.0.0.1:1", "/run/a.sock"] },
    "bind 'unix://puma'" => { addresses: ["puma"] },
    "port 1\nbind 'unix://tmp/sockets/puma.sock'" => { addresses: ["0.0.0.0:1", "tmp/sockets/puma.sock"] },
    "port 1\nclear_binds!\nport 2" => { addresses: ["0.0.0.0:2"] },
    "set_default_host '10.0.0.5'\nport 1\nbind \"tcp://\#{default_host}:2\"" => { addresses: ["10.0.0.5:1", "10.0.0.5:2"] },
    "workers ENV.fetch('NO_SUCH_VARIABLE') { '3' }" => { max_workers: 3 }, "workers nil" => { max_workers: 1 },
    "workers 2.0" => { max_workers: 2 }, "workers 1.5" => { max_workers: 1 }, "threads 1.5, 4.5" => { max_threads: 4 },
    "" => { max_workers: 1, default_middleware: false, preload_app: true, request_timeout: 60.0 },
    "pidfile 'tmp/pids/server.pid'\ndirectory '/'" => { pid: "tmp/pids/server.pid", working_directory: "/" },
    "first_data_timeout 40\nworker_timeout 3600\nworker_boot_timeout '90'" => { header_timeout: 40, worker_timeout: 3600, worker_boot_timeout: 90 },
    "persistent_timeout 20\nmax_keep_alive 100" => { keep_alive: true, keep_alive_timeout: 20, keep_alive_requests: 100 },
    "persistent_timeout 0\nmax_keep_alive Float::INFINITY" => { keep_alive: false, keep_alive_requests: 0 },
    "enable_keep_alives false" => { keep_alive: false }, "worker_shutdown_timeout 90" => { graceful_timeout: 90 },
    "force_shutdown_after 5\nworker_shutdown_timeout 90" => { graceful_timeout: 5 },
    "force_shutdown_after :immediately" => { graceful_timeout: 0 },
    "worker_shutdown_timeout 9\nforce_shutdown_after :forever" => { graceful_timeout: 9 },
    "http_content_length_limit 2_000_000" => { max_body_size: 2_000_000 }, "early_hints" => { early_hints: true },
    "preload_app! false" => { preload_app: false }, "preload_app!" => { preload_app: true },
    "stdout_redirect 'out.log', 'err.log', true" => { stdout_path: "out.log", stderr_path: "err.log" },
    "max_io_threads 5" => { max_streams: 5 }, "max_io_threads '0'" => { max_streams: 0 }, "max_io_threads Float::INFINITY" => { max_streams: 1000 },
    "max_io_threads 5000" => { max_streams: 1000 }, "threads 3" => { max_threads: 3, max_streams: 256 }, "threads 1" => { max_streams: 0 },
    "fork_worker" => { refork: true }, "fork_worker 500" => { refork: true }, "threads 1, 1" => { max_workers: 1, max_threads: 1 },
    "threads 2, '5'" => { max_threads: 5 },
    "activate_control_app 'unix:///run/a.sock', { no_token: true }" => { control_path: "/run/a.sock", control_listen: nil },
    "activate_control_app 'tcp://127.0.0.1:9293', { auth_token: '0123456789abcdef' }" => { control_listen: "127.0.0.1:9293", control_path: nil },
    "silence_single_worker_warning\nsilence_fork_callback_warning\nnakayoshi_fork" => {},
    "max_request_per_child 10\nrequest_timeout 5" => { max_request_per_child: 10, request_timeout: 5 },
    "inject { workers 2 }\nraise unless get(:workers) == 2 && get('other', 1) == 1" => { max_workers: 2 },
    "workers 2\ncluster { preload_app! false }\nsingle { raise }" => { preload_app: false, max_workers: 2 },
    "single { early_hints }\ncluster { raise }" => { early_hints: true },
    "raise_exception_on_sigterm false\ndrain_on_shutdown\nqueue_requests\nshutdown_debug on_force: true" => {},
    "set_remote_address :socket\nio_selector_backend :auto\nwait_for_less_busy_worker" => {},
    "supported_http_methods :any\nallow_underscore_headers\nworker_culling_strategy :youngest" => {} }.each do |text, values|
    it "#{text.inspect} sets what it says, and nothing is to be said of it" do
      found = configure(text)
      values.each do |word, value|
        given = found.public_send(word)
        expect(word == :addresses ? given.map(&:to_s) : given).to eq(value), word.to_s
      end
      expect(said).to eq([])
    end
  end

  # One line each, of what does not apply here.
  {
    "threads 5, 100" => /\Athreads 100: 64 is the most here/, "workers 0" => /\Aworkers 0: a master and one worker/,
    "after_refork { }" => /serves no more/,
    "activate_control_app" => /the socket is beside the pid file/,
    "activate_control_app 'tcp://127.0.0.1:9293'" => /no effect without auth_token/,
    "activate_control_app 'tcp://127.0.0.1:9293', { auth_token: 'short' }" => /no effect: .* must be 16 or more/,
    "activate_control_app 'tcp://example.com:9293', { auth_token: '0123456789abcdef' }" => /no effect: .* must be an IP address/,
    "bind_to_activated_sockets" => /systemd's sockets are always used/,
    "idle_timeout 60" => /the server does not stop by itself/, "drain_on_shutdown false" => /TERM always serves/,
    "restart_command 'bin/x'" => /USR2 runs the command/,
    "debug" => /no debug log/, "log_formatter { |line| line }" => /LogFormat says/,
    "max_fast_inline 5" => /in their order/,
    "raise_exception_on_sigterm" => /exit status is 0/, "extra_runtime_dependencies ['a']" => /with its Gemfile/,
    "prune_bundler" => /\Aprune_bundler: each worker loads the app/,
    "worker_check_interval 10" => /does not poll/, "worker_culling_strategy :oldest" => /highest number/,
    "queue_requests false" => /enable_keep_alives false/, "shutdown_debug" => /logs its backtraces in any case/,
    "wait_for_less_busy_worker 0" => /only idle workers/, "io_selector_backend :poll" => /the engine chooses/, "mutate_stdout_and_stderr_to_sync_on_write false" => /written at once/,
    "daemonize" => /fastrack -d/, "custom_logger $stderr" => /go to stderr/,
    "stdout_redirect 'out.log'" => /appended to, not emptied/
  }.each do |text, line|
    it "#{text.inspect} is answered with one line that says what there is instead" do
      configure(text)
      expect(said).to match([line])
    end
  end

  # Files that would serve something else than they say.
  {
    "app { |env| [200, {}, []] }" => /app is not for this server: put the app into config\.ru/,
    "ssl_bind '127.0.0.1', '9292', cert: 'a'" => /ssl_bind needs a key for each cert/,
    "bind 'ssl://127.0.0.1:9292?key=a'" => /bind needs a key for each cert/,
    "bind 'tcp://127.0.0.1:9292?key=a'" => /bind has key without ssl:/,
    "ssl_bind '127.0.0.1', '9292', cert: 'a', key: 'b', verify_mode: 'peer'" => /ssl_bind verify_mode must be none/,
    "tcp_mode!" => /only HTTP/, "tcp_mode" => /only HTTP/,
    "allow_underscore_headers false" => /have the proxy drop them/,
    "set_remote_address 1" => /set_remote_address must be/,
    "supported_http_methods 'GET'" => /must be :any or a list/,
    "plugin :no_such" => /plugin :no_such cannot be loaded: .*; is its gem in the Gemfile\?/,
    "threads 5, 2" => /threads needs a maximum/, "threads 'many'" => /threads must be a whole number.*got many/,
    "workers 'many'" => /workers must be a whole number/, "bind nil" => /bind must be a port/, "bind 'unix://@app'" => /bind must name a file: abstract sockets/,
    "before_fork" => /needs a block/, "worker 5" => /unknown word worker; did you mean workers\?/, "timeout 5" => /unknown word timeout/,
    "before_worker_boot { }\nafter_fork { }" => /after_fork and Puma's word for that hook cannot both be there/,
    "state_permission 'all'" => /state_permission must be a file mode/
  }.each do |text, message|
    it "#{text.inspect} is refused with the line of the file" do
      expect { configure(text) }.to raise_error(Fastrack::ConfigurationError, /\AConfigFile #{Regexp.escape(@dir)}\/puma\.rb(:\d+)?: .*#{message.source}/)
    end
  end

  it "WEB_CONCURRENCY=0 is one worker too, and said" do
    expect([configure("", {}, "WEB_CONCURRENCY" => "0").max_workers, said]).to match([1, [/\Aworkers 0: a master and one worker/]])
    expect(configure("workers 2", {}, "WEB_CONCURRENCY" => "0").max_workers).to eq(2)
  end

  it "environment sets RACK_ENV, and RAILS_ENV if that is unset, unless the command line does" do
    environment = { "RACK_ENV" => "development" }
    configure("environment 'staging'", {}, environment)
    expect(environment).to eq("RACK_ENV" => "staging", "RAILS_ENV" => "staging")
    configure("environment 'test'", { environment: "production" }, environment)
    configure("environment ENV['NO_SUCH_VARIABLE']", {}, environment)
    configure("environment 'test'", {}, rails = { "RAILS_ENV" => "production" })
    expect([environment.values.uniq, rails]).to eq([["staging"], { "RAILS_ENV" => "production", "RACK_ENV" => "test" }])
  end

  it "load reads other files after this one" do
    write("more/base.rb", "workers 4\ndebug")
    found = configure("load 'more/base.rb'\nworkers 2")
    expect([found.max_workers, warnings.string]).to match([4, %r{more/base\.rb:2: debug}])
    write("more/base.rb", "wrong 1")
    expect { configure("load 'more/base.rb'") }.to raise_error(Fastrack::ConfigurationError, %r{\AConfigFile .*/more/base\.rb:1: unknown word wrong})
  end

  it "options that the user of Rails has chosen go before the file, and Rails' defaults behind it" do
    text = "port 4000\nworkers 2\nbind 'unix:///a.sock'"
    rails = { Port: 3000, Host: "localhost", environment: "development" }
    expect(configure(text, { **rails, user_supplied_options: [] }).addresses.map(&:to_s)).to eq(["localhost:4000", "/a.sock"])
    expect(configure(text, { **rails, Port: 5000, user_supplied_options: [:Port] }).addresses.map(&:to_s)).to eq(["localhost:5000"])
  end

  it "go behind a whole address that the user of Rails has chosen as host" do
    rails = { Port: 3000, environment: "development", user_supplied_options: [:Host] }
    found = { "/run/a.sock" => "/run/a.sock", "./a.sock" => "./a.sock", "unix:///run/a.sock" => "/run/a.sock", "tcp://127.0.0.1:4001" => "127.0.0.1:4001",
              "tcp://127.0.0.1" => "127.0.0.1:3000", "127.0.0.1:4001" => "127.0.0.1:4001", "[::1]:4001" => "[::1]:4001", "::1" => "[::1]:3000" }
    hosts = found.keys.to_h { |host| [host, configure("port 3000", { **rails, Host: host }).addresses.join(" ")] }
    expect(hosts).to eq(found)
    tls = configure("port 3000", { **rails, Host: "ssl://127.0.0.1:4001" }).addresses.first
    expect([tls.to_s, tls.tls?, tls.certificates]).to eq(["127.0.0.1:4001", true, []])
  end

  it "files are Puma's by their name" do
    %w[puma.rb puma_staging.rb config/puma/production.rb].each do |name|
      write(name, "persistent_timeout 7")
      found = Fastrack::Configuration.new({ ConfigFile: name }, environment: {}, output: StringIO.new, warnings: warnings)
      expect(found.keep_alive_timeout).to eq(7)
    end
    write("srv/puma/app.rb", "max_workers 7")
    expect(Fastrack::Configuration.new({ ConfigFile: "srv/puma/app.rb" }, environment: {}, output: StringIO.new, warnings: warnings).puma).to be_nil
  end

  it "config/puma.rb is read where there is no config/fastrack.rb, and a file for the environment before it" do
    count = lambda do |environment = {}, given = { user_supplied_options: [] }|
      Fastrack::Configuration.new(given, environment: environment, output: StringIO.new, warnings: warnings).max_workers
    end
    write("config/puma.rb", "workers 2")
    write("config/puma/staging.rb", "workers 3")
    expect([count.call, count.call("RACK_ENV" => "staging")]).to eq([2, 3])
    # With rackup, where Rhebok's users have not named it, it is none of theirs.
    expect(count.call({}, { AccessLog: [], Host: "0.0.0.0" })).to eq(5)
    write("config/fastrack.rb", "max_workers 4")
    expect([count.call, count.call("RACK_ENV" => "staging")]).to eq([4, 4])
  end

  it "are all known, and all of them are in the manual's table" do
    expect(words - Fastrack::PumaFile.public_instance_methods).to eq([])
    # Not by ConfigFile's method_missing, nor Kernel's.
    expect(words.map { |word| Fastrack::PumaFile.instance_method(word).owner } - [Fastrack::PumaFile, Fastrack::PumaWords]).to eq([])
    table = File.read(File.join(Server::ROOT, "docs/migrate.md"))[/^## From Puma$.*?(?=^## |\z)/m].lines.grep(/\A\|/)
    listed = table.flat_map { |line| line[/\A\|([^|]*)\|/, 1].scan(/`(\w+!?)/) }.flatten.map(&:to_sym)
    expect(words - listed).to eq([])
  end

  it "are those of the Puma that is installed here" do
    file = Gem.path.flat_map { |path| Dir.glob("#{path}/gems/puma-*/lib/puma/dsl.rb") }.first
    skip "no Puma here" unless file
    public_part = File.read(file)[/class DSL.*?^    private$/m]
    defined_there = public_part.scan(/^    def (?!self)([a-z]\w*[!?]?)/).flatten + public_part.scan(/alias(?:_method)? :?(\w+)/).flatten
    expect(defined_there.map(&:to_sym) - words - [:initialize]).to eq([])
  end
end
