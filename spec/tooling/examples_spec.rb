# frozen_string_literal: true

require "yaml"
require_relative "../../lib/fastrack/configuration/config_file"

# What people copy from examples/. The apps of Rails and Sinatra are those of spec/apps, the units of systemd those of spec/master.
RSpec.describe "The examples", once: "files to be copied, and the apps that need no library" do
  include Folder

  examples = File.join(Server::ROOT, "examples")
  text = ->(file) { File.read(File.join(examples, file), encoding: "UTF-8") }
  yaml = ->(file) { YAML.load_stream(text.call(file)) }
  default = ->(name) { Fastrack::Option::BY_NAME.fetch(name).default }

  def write(file, content, mode = 0o644) = Folder.write(@dir, file, content, perm: mode)

  # The settings of a ConfigFile.
  def settings(config) = Fastrack::ConfigFile.load(write("settings.rb", config))

  # Starts an example's folder by a shell, as a Procfile's command is, with bundle and fastrack on PATH.
  def boot(name, ru: nil)
    FileUtils.cp_r(File.join(Server::ROOT, "examples", name, "."), @dir)
    write("config.ru", ru) if ru
    write("bin/bundle", "#!/bin/sh\nshift\nexec \"$@\"\n", 0o755)
    write("bin/fastrack", "#!/bin/sh\nexec #{RbConfig.ruby} -w #{Server::COMMAND} \"$@\"\n", 0o755)
    procfile = File.join(@dir, "Procfile")
    command = File.exist?(procfile) ? File.read(procfile)[/^web: (.+)$/, 1] : "bundle exec fastrack"
    env = { "PORT" => "0", "WEB_CONCURRENCY" => "2", "DYNO" => "web.1", "PATH" => "#{@dir}/bin:#{ENV.fetch("PATH")}" }
    Server.start(ru: "", command: ["sh", "-c", "cd #{@dir} && exec #{command}"], env: env)
  end

  apps = { "hello" => /worker.*process WORKER, of master/, "heroku" => /\ADyno web\.1, worker WORKER\n\z/ }

  apps.each do |name, page|
    it "boot and answer by PORT and WEB_CONCURRENCY: #{name}" do
      server = boot(name)
      workers = server.await_workers(2)
      expect(server.get.body).to match(page.source.sub("WORKER", "(?:#{workers.join("|")})"))
      expect(server.listening[:host]).to eq("0.0.0.0") if name == "heroku"
      expect(server.stop.exitstatus).to eq(0)
    end
  end

  # The platform sends it to all of a dyno, and its router goes on for a moment.
  it "answer all requests when every process gets TERM at once, and those that come a moment later" do
    server = boot("heroku", ru: <<~'RUBY')
      run lambda { |env|
        if env["PATH_INFO"] == "/slow"
          File.write("begun.#{Process.pid}", "")
          sleep 0.8
        end
        [200, {}, ["answered"]]
      }
    RUBY
    server.await_workers(2)
    slow = Array.new(2) { Thread.new { server.get("/slow").body } }
    eventually { Dir.glob("#{@dir}/begun.*").size == 2 }
    KeptPeer.new(server)
    waiting = Array.new(4) { Thread.new { server.get.body } }
    server.processes.each { |pid| Process.kill(:TERM, pid) }
    later = Array.new(4) { Thread.new { server.get.body } }
    expect([*slow, *waiting, *later].map(&:value)).to eq(["answered"] * 10)
    expect(server.wait.exitstatus).to eq(0)
  end

  # nginx's configurations in examples/ and in the manual's pages, with this folder's sockets for theirs.
  describe "of nginx" do
    before { skip "no nginx" unless ENV.fetch("PATH").split(":").any? { |dir| File.executable?(File.join(dir, "nginx")) } }

    pages = Dir.glob("docs/*.md", base: Server::ROOT).to_h { |page| [page, File.read(File.join(Server::ROOT, page), encoding: "UTF-8")] }
    blocks = pages.flat_map { |page, content| content.scan(/^```nginx\n(.*?)^```$/m).flatten.map.with_index(1) { |block, number| ["#{page} (#{number})", block] } }
    files = Dir.glob("**/*nginx*", base: examples).map { |file| ["examples/#{file}", text.call(file)] }

    [*files, *blocks].each do |name, configuration|
      describe "in #{name}" do
        before do
          names = %w[HTTP_HOST HTTP_X_FORWARDED_PROTO HTTP_X_FORWARDED_FOR HTTP_CONNECTION HTTP_X_REQUEST_START]
          @app = Server.start(ru: "run ->(env) { [200, {}, [env.values_at(*#{names.inspect}).inspect]] }", unix: true, options: { MaxWorkers: 1 })
          listen = File.join(@dir, "nginx.sock")
          adapted = configuration.gsub("/run/app/app.sock", @app.path).sub(/listen 80\b/, "listen unix:#{listen}")
          @nginx = HttpNginx.new(nil, servers: adapted, path: listen)
        end

        after { @nginx&.stop }

        def answer(*lines) = @nginx.connect { |socket| socket.write(lines.map { |line| "#{line}\r\n" }.join, "\r\n") && HttpResponse.parse(socket.read) }

        it "serves over the socket, and says for whom, by what and when the request came, whatever the client says" do
          answers = Array.new(5) { answer("GET / HTTP/1.1", "Host: app.example:81", "X-Request-Start: t=1", "X-Forwarded-Proto: gopher", "Connection: close") }
          now = Time.now.to_f
          answers.each do |answer|
            host, proto, from, connection, start = JSON.parse(answer.body.gsub("nil", "null"))
            expect([host, proto, from, connection]).to eq(["app.example:81", "http", "unix:", ("close" unless configuration.include?("keepalive"))])
            expect(Float(start[/\At=(\d+\.\d{3})\z/, 1])).to be_within(60).of(now)
          end
          expect(@nginx.log).to eq("")
        end

        it "serves a client without Host, as a health check by HTTP/1.0 is, by the target's name or any" do
          hosts = ["GET / HTTP/1.0", "GET http://shop.example/ HTTP/1.0"].map { |line| answer(line) }
          expect(hosts.map { |found| [found.status, found.body[/\A\["([^"]*)"/, 1]] }).to eq([[200, "localhost"], [200, "shop.example"]])
        end
      end
    end
  end

  it "are valid YAML and JSON" do
    Dir.glob("**/*.{yml,yaml}", base: examples).each { |file| expect(yaml.call(file)).to all(be_a(Hash)), file }
    Dir.glob("**/*.json", base: examples).each { |file| expect(JSON.parse(text.call(file))).to be_a(Hash), file }
  end

  it "stop within the time that their platforms give, behind proxies that wait for longer than a request may take" do
    map, deployment, = yaml.call("kubernetes/app.yaml")
    heroku = settings(text.call("heroku/config/fastrack.rb"))
    to_stop = ->(found) { found.fetch(:DrainDelay) + found.fetch(:GracefulTimeout) }
    expect(to_stop.call(settings(map.dig("data", "fastrack.rb")))).to be < deployment.dig("spec", "template", "spec", "terminationGracePeriodSeconds")
    expect([to_stop.call(heroku), heroku.fetch(:RequestTimeout)]).to all(be < 30)
    # The router keeps connections for 90 s.
    expect([heroku.fetch(:KeepAliveTimeout), default.call(:KeepAliveTimeout)]).to all(be > 90)
    expect(yaml.call("compose/compose.yml").first.dig("services", "app", "stop_grace_period").to_i).to be > default.call(:GracefulTimeout)
    kamal = yaml.call("kamal/deploy.yml").first
    expect([kamal.dig("proxy", "response_timeout"), kamal["drain_timeout"]]).to all(be > default.call(:RequestTimeout))
    expect(kamal["drain_timeout"]).to be > default.call(:DrainDelay) + default.call(:GracefulTimeout)
    expect(text.call("compose/nginx.conf")[/proxy_read_timeout (\d+)s;/, 1].to_i).to be > default.call(:RequestTimeout)
  end

  it "name the port, the socket, the file and the command that the server has" do
    port = default.call(:Port)
    map, deployment, service = yaml.call("kubernetes/app.yaml")
    container = deployment.dig("spec", "template", "spec", "containers").first
    expect(container["ports"]).to eq([{ "name" => "http", "containerPort" => port }])
    expect([service.dig("spec", "ports").first["targetPort"], *container.values_at("startupProbe", "readinessProbe").map { |probe| probe.dig("httpGet", "port") }]).to all(eq("http"))
    mount = container["volumeMounts"].find { |one| one["name"] == "fastrack" }
    expect(container["command"]).to include("#{mount["mountPath"]}/#{map["data"].keys.first}")
    expect(container["env"]).to include("name" => "WEB_CONCURRENCY", "value" => container.dig("resources", "limits", "cpu"))
    expect(yaml.call("kamal/deploy.yml").first.dig("proxy", "app_port")).to eq(port)
    expect(text.call("docker/Dockerfile")).to include("EXPOSE #{port}\n", "CMD [\"bundle\", \"exec\", \"fastrack\", \"-e\", \"production\"]\n")
    compose = yaml.call("compose/compose.yml").first.dig("services", "app")
    socket = compose["command"].grep(/\Aunix:/).first.delete_prefix("unix://")
    expect(text.call("compose/nginx.conf")).to include("server unix:#{socket} ")
    expect(compose["volumes"]).to eq(["socket:#{File.dirname(socket)}"])
  end

  it "have Prometheus scrape the monitor where the server has it, with its token" do
    server = settings(text.call("monitoring/fastrack.rb"))
    job = yaml.call("monitoring/prometheus.yml").first["scrape_configs"].first
    expect(job.dig("static_configs", 0, "targets")).to eq(["127.0.0.1:#{server.fetch(:ControlListen)[/\d+\z/]}"])
    expect(job.dig("authorization", "credentials")).to eq(server.fetch(:ControlToken))
    services = yaml.call("monitoring/compose.yml").first["services"]
    # The monitor's port, and Prometheus', are for loopback alone.
    expect(services.values_at("prometheus", "grafana").map { |one| one["network_mode"] }).to eq(["service:app"] * 2)
    files = services.values.flat_map { |one| one["volumes"] }.map { |volume| volume.split(":").first }
    expect(files.reject { |file| File.file?(File.join(examples, "monitoring", file)) }).to eq([])
  end
end
