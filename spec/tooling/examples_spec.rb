# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/http_nginx"
require_relative "../support/kept_peer"
require_relative "../support/memory_cgroup"
require_relative "../../lib/fastrack/configuration/config_file"
require "fileutils"
require "json"
require "yaml"

# The examples for platforms: what can be tried here is tried.
RSpec.describe "The examples" do
  examples = File.join(Server::ROOT, "examples")
  text = ->(file) { File.read(File.join(examples, file), encoding: "UTF-8") }
  yaml = ->(file) { YAML.load_stream(text.call(file)) }

  around do |example|
    Dir.mktmpdir("fastrack-examples") do |dir|
      @dir = File.realpath(dir)
      example.run
    end
  end

  def write(file, content, mode = 0o644)
    path = File.join(@dir, file)
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, content)
    File.chmod(mode, path)
    path
  end

  # The settings of a ConfigFile.
  def settings(config)
    Fastrack::ConfigFile.load(write("settings.rb", config))
  end

  # Seconds from TERM to the end, at most.
  def seconds_to_stop(config)
    found = settings(config)
    found.fetch(:DrainDelay) + found.fetch(:GracefulTimeout)
  end

  it "are valid YAML and JSON" do
    Dir.glob("**/*.{yml,yaml}", base: examples).each { |file| expect(yaml.call(file)).to all(be_a(Hash)), file }
    Dir.glob("**/*.json", base: examples).each { |file| expect(JSON.parse(text.call(file))).to be_a(Hash), file }
  end

  it "have Prometheus scrape the monitor where the server has it, with its token, and Grafana ask that Prometheus" do
    server = settings(text.call("monitoring/fastrack.rb"))
    job = yaml.call("monitoring/prometheus.yml").first["scrape_configs"].first
    expect(job.dig("static_configs", 0, "targets")).to eq(["127.0.0.1:#{server.fetch(:ControlListen)[/\d+\z/]}"])
    expect(job.dig("authorization", "credentials")).to eq(server.fetch(:ControlToken))
    source = yaml.call("monitoring/datasource.yml").first["datasources"].first
    # Prometheus' own port.
    expect(source.values_at("type", "url")).to eq(["prometheus", "http://127.0.0.1:9090"])
    services = yaml.call("monitoring/compose.yml").first["services"]
    # The monitor's port, and Prometheus', are for loopback alone.
    expect(services.values_at("prometheus", "grafana").map { |one| one["network_mode"] }).to eq(["service:app"] * 2)
    files = services.values.flat_map { |one| one["volumes"] }.map { |volume| volume.split(":").first }
    expect(files.reject { |file| File.file?(File.join(examples, "monitoring", file)) }).to eq([])
    expect(services.dig("app", "command").last).to eq(services.dig("app", "volumes", 0).split(":")[1])
    folder = yaml.call("monitoring/dashboards.yml").first.dig("providers", 0, "options", "path")
    expect(services.dig("grafana", "volumes").map { |volume| volume.split(":")[1] }).to include("#{folder}/fastrack.json")
  end

  it "stop within the time that their platforms give" do
    config_map, deployment, = yaml.call("kubernetes/app.yaml")
    grace = deployment.dig("spec", "template", "spec", "terminationGracePeriodSeconds")
    expect(seconds_to_stop(config_map.dig("data", "fastrack.rb"))).to be < grace
    expect(seconds_to_stop(text.call("heroku/config/fastrack.rb"))).to be < 30
    compose = yaml.call("compose/compose.yml").first.dig("services", "app")
    expect(compose["stop_grace_period"].to_i).to be > Fastrack::Option::BY_NAME.fetch(:GracefulTimeout).default
  end

  it "have proxies that wait for longer than a request may take, and let old containers finish" do
    default = ->(name) { Fastrack::Option::BY_NAME.fetch(name).default }
    kamal = yaml.call("kamal/deploy.yml").first
    expect([kamal.dig("proxy", "response_timeout"), kamal["drain_timeout"]]).to all(be > default.call(:RequestTimeout))
    expect(kamal["drain_timeout"]).to be > default.call(:DrainDelay) + default.call(:GracefulTimeout)
    expect(text.call("compose/nginx.conf").scan(/proxy_read_timeout (\d+)s;/).flatten.map(&:to_i)).to match([be > default.call(:RequestTimeout)])
    expect(settings(text.call("heroku/config/fastrack.rb")).fetch(:RequestTimeout)).to be < 30
  end

  it "have a Kubernetes pod with probes and limits, which needs no preStop hook to serve on" do
    config_map, deployment, = yaml.call("kubernetes/app.yaml")
    container = deployment.dig("spec", "template", "spec", "containers").first
    expect(container.slice("startupProbe", "readinessProbe").values.map { |probe| probe["httpGet"] }).to eq([{ "path" => "/up", "port" => "http" }] * 2)
    expect(container.dig("livenessProbe", "tcpSocket")).to eq("port" => "http")
    expect(container["resources"].values).to all(include("cpu", "memory"))
    expect(container).not_to have_key("lifecycle")
    expect(settings(config_map.dig("data", "fastrack.rb")).fetch(:DrainDelay)).to be >= 5
    # By the names that the pod gives to the file of the ConfigMap.
    mount = container["volumeMounts"].find { |one| one["name"] == "fastrack" }
    expect(container["command"]).to include("#{mount["mountPath"]}/fastrack.rb")
    expect(container["env"]).to include("name" => "WEB_CONCURRENCY", "value" => container.dig("resources", "limits", "cpu"))
  end

  it "name the port, the socket and the command that the server has" do
    port = Fastrack::Option::BY_NAME.fetch(:Port).default
    _, deployment, service = yaml.call("kubernetes/app.yaml")
    container = deployment.dig("spec", "template", "spec", "containers").first
    expect(container["ports"]).to eq([{ "name" => "http", "containerPort" => port }])
    expect(service.dig("spec", "ports").first["targetPort"]).to eq("http")
    expect(yaml.call("kamal/deploy.yml").first.dig("proxy", "app_port")).to eq(port)
    expect(text.call("docker/Dockerfile")).to include("EXPOSE #{port}\n", "CMD [\"bundle\", \"exec\", \"fastrack\", \"-e\", \"production\"]\n")
    compose = yaml.call("compose/compose.yml").first.dig("services", "app")
    socket = compose["command"].grep(/\Aunix:/).first.delete_prefix("unix://")
    expect(text.call("compose/nginx.conf")).to include("server unix:#{socket} ")
    expect(compose["volumes"]).to eq(["socket:#{File.dirname(socket)}"])
  end

  it "have a Dockerfile that leaves compilers in the stage that builds" do
    stages = text.call("docker/Dockerfile").split(/^FROM /).drop(1)
    compiling = stages.select { |stage| stage.match?(/build-essential|cargo|libclang|-dev\b/) }
    expect(compiling.map { |stage| stage[/ AS (\w+)$/, 1] }).to eq(["build"])
    expect(stages.last).to include("\nUSER 1000:1000\n", "\nCMD [")
  end

  it "give a router that keeps connections for 90 s less time than the server does" do
    expect(settings(text.call("heroku/config/fastrack.rb")).fetch(:KeepAliveTimeout)).to be > 90
    expect(Fastrack::Option::BY_NAME.fetch(:KeepAliveTimeout).default).to be > 90
  end

  it "have an nginx that serves over the socket, on connections that it keeps" do
    skip "no nginx" unless ENV.fetch("PATH").split(":").any? { |dir| File.executable?(File.join(dir, "nginx")) }
    ru = 'run ->(env) { [200, {}, [env.values_at("HTTP_HOST", "HTTP_X_FORWARDED_PROTO", "HTTP_CONNECTION").inspect]] }'
    server = Server.start(ru: ru, unix: true, options: { MaxWorkers: 1 })
    listen = File.join(@dir, "nginx.sock")
    blocks = text.call("compose/nginx.conf").gsub("/run/app/app.sock", server.path).sub("listen 80 default_server;", "listen unix:#{listen};")
    nginx = HttpNginx.new(nil, servers: blocks, path: listen)
    bodies = Array.new(5) do
      nginx.connect do |socket|
        socket.write("GET / HTTP/1.1\r\nHost: app.example\r\nConnection: close\r\n\r\n")
        HttpResponse.parse(socket.read).body
      end
    end
    expect(bodies.uniq).to eq(['["app.example", "http", nil]'])
    expect(nginx.log).to eq("")
  ensure
    nginx&.stop
  end

  describe "for Heroku" do
    # Its Procfile's command, run by a shell as the platform does it, with bundle and fastrack on PATH.
    def start_dyno(ru: nil, wrapper: [])
      FileUtils.cp_r(File.join(Server::ROOT, "examples/heroku/."), @dir)
      write("config.ru", ru) if ru
      write("bin/bundle", "#!/bin/sh\nshift\nexec \"$@\"\n", 0o755)
      write("bin/fastrack", "#!/bin/sh\nexec #{RbConfig.ruby} -w #{Server::COMMAND} \"$@\"\n", 0o755)
      command = File.read(File.join(@dir, "Procfile"))[/^web: (.+)$/, 1]
      env = { "PORT" => "0", "WEB_CONCURRENCY" => "2", "DYNO" => "web.1", "PATH" => "#{@dir}/bin:#{ENV.fetch("PATH")}" }
      Server.start(ru: "", command: [*wrapper, "sh", "-c", "cd #{@dir} && exec #{command}"], env: env)
    end

    it "boots by the Procfile's command with PORT set, and serves from as many workers as WEB_CONCURRENCY says" do
      server = start_dyno
      workers = server.await_workers(2)
      expect(server.get.body).to match(/\ADyno web\.1, worker (?:#{workers.join("|")})\n\z/)
      expect(server.listening[:host]).to eq("0.0.0.0")
      expect(server.stop.exitstatus).to eq(0)
    end

    # A minute and a half: only with LOAD=full.
    it "answers on connections that the router has left idle for 90 s", if: ENV["LOAD"] == "full" do
      server = start_dyno
      server.await_workers(2)
      peers = Array.new(8) { KeptPeer.new(server).tap { |peer| peer.get("/") } }
      sleep 91
      expect(peers.map { |peer| peer.get("/").status }).to eq([200] * 8)
    ensure
      peers&.each(&:close)
    end

    it "answers all requests when every process gets TERM at once, and those that come a moment later" do
      server = start_dyno(ru: <<~'RUBY')
        run lambda { |env|
          if env["PATH_INFO"] == "/slow"
            File.write("begun.#{Process.pid}", "")
            sleep 0.8
          end
          [200, {}, ["answered"]]
        }
      RUBY
      server.await_workers(2)
      begun = -> { Dir.glob("#{@dir}/begun.*").size }
      slow = Array.new(2) { Thread.new { server.get("/slow").body } }
      # Both workers are busy.
      eventually { begun.call == 2 }
      idle = KeptPeer.new(server)
      waiting = Array.new(4) { Thread.new { server.get.body } }
      server.processes.each { |pid| Process.kill(:TERM, pid) }
      later = Array.new(4) { Thread.new { server.get.body } }
      expect([*slow, *waiting, *later].map(&:value)).to eq(["answered"] * 10)
      expect(server.wait.exitstatus).to eq(0)
    ensure
      idle&.close
    end

    it "stays within 512 MB, with an upload of 100 MB and a download of 50 MB, in a cgroup that kills beyond that" do
      cgroup = MemoryCgroup.make(512 * 1024 * 1024) or skip "no cgroup can be made here"
      server = start_dyno(wrapper: cgroup.wrapper, ru: <<~'RUBY')
        run lambda { |env|
          size = 0
          while (piece = env["rack.input"].read(65_536))
            size += piece.bytesize
          end
          [200, { "x-size" => size.to_s }, [env["PATH_INFO"] == "/download" ? "x" * 50_000_000 : "small"]]
        }
      RUBY
      workers = server.await_workers(2)
      expect(cgroup.processes).to include(*workers, server.master)
      expect(server.post("/", "x" * 100_000_000, timeout: 60).headers["x-size"]).to eq("100000000")
      expect(server.get("/download", timeout: 60).body.bytesize).to eq(50_000_000)
      expect(server.workers).to match_array(workers)
      expect(server.log).not_to include("SIGKILL")
      server.stop
    ensure
      Server.stop_all(:example)
      cgroup&.remove
    end
  end
end
