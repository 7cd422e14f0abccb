# frozen_string_literal: true

require "yaml"
require "open3"
require_relative "../../lib/fastrack/cli/control"
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
  #
  # @param delay [Numeric, nil] seconds of DrainDelay instead of the example's
  def boot(name, ru: nil, delay: nil)
    FileUtils.cp_r(File.join(Server::ROOT, "examples", name, "."), @dir)
    write("config.ru", ru) if ru
    write("config/fastrack.rb", File.read("#{@dir}/config/fastrack.rb").sub(/^drain_delay .*/, "drain_delay #{delay}")) if delay
    write("bin/bundle", "#!/bin/sh\nshift\nexec \"$@\"\n", 0o755)
    write("bin/fastrack", "#!/bin/sh\nexec #{RbConfig.ruby} -w #{Server::COMMAND} \"$@\"\n", 0o755)
    procfile = File.join(@dir, "Procfile")
    command = File.exist?(procfile) ? File.read(procfile)[/^web: (.+)$/, 1] : "bundle exec fastrack"
    env = { "PORT" => "0", "WEB_CONCURRENCY" => "2", "DYNO" => "web.1", "PATH" => "#{@dir}/bin:#{ENV.fetch("PATH")}" }
    Server.start(ru: "", command: ["sh", "-c", "cd #{@dir} && exec #{command}"], env: env)
  end

  # The Dockerfile's last stage: RUN has all commands, the others their words.
  def dockerfile
    last = File.read(File.join(Server::ROOT, "examples/docker/Dockerfile")).split(/^FROM /).last.gsub(/^#.*\n/, "").gsub(/\\\n\s*/, "")
    words = last.scan(/^(HEALTHCHECK|CMD|ENTRYPOINT) (?:--.* CMD )?(\[.*\])$/)
    words.to_h.transform_values { |list| JSON.parse(list) }.merge("RUN" => last.scan(/^RUN (.*)$/).flatten)
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
    server = boot("heroku", delay: GcMode.patient(3), ru: <<~'RUBY')
      run lambda { |env|
        if env["PATH_INFO"] == "/slow"
          File.write("begun.#{Process.pid}", "")
          sleep 0.01 until File.exist?("go")
        end
        [200, {}, ["answered"]]
      }
    RUBY
    server.await_ready
    slow = Array.new(2) { Thread.new { server.get("/slow").body } }
    eventually { Dir.glob("#{@dir}/begun.*").size == 2 }
    KeptPeer.new(server)
    waiting = Array.new(4) { Thread.new { server.get.body } }
    server.processes.each { |pid| Process.kill(:TERM, pid) }
    later = Array.new(4) { Thread.new { server.get.body } }
    write("go", "")
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
    expect(kamal["stop_timeout"]).to be > default.call(:GracefulTimeout)
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
    # As arguments: a command would take the place of the image's entrypoint.
    expect([container["command"], container["args"]]).to match([nil, include("#{mount["mountPath"]}/#{map["data"].keys.first}")])
    expect(container["env"]).to include("name" => "WEB_CONCURRENCY", "value" => container.dig("resources", "limits", "cpu"))
    expect(yaml.call("kamal/deploy.yml").first.dig("proxy", "app_port")).to eq(port)
    expect(text.call("docker/Dockerfile")).to include("EXPOSE #{port}\n")
    compose = yaml.call("compose/compose.yml").first.dig("services", "app")
    socket = compose["command"].grep(/\Aunix:/).first.delete_prefix("unix://")
    expect(text.call("compose/nginx.conf")).to include("server unix:#{socket} ")
    expect(compose["volumes"]).to eq(["socket:#{File.dirname(socket)}"])
  end

  # Each has a pid file, and so a monitor beside it, in a folder that the server may write to and no other container sees.
  describe "of platforms" do
    def flag(words, name) = words[words.index(name) + 1]

    it "have a pid file in a folder that is there: systemd's, and the image's, which compose and Kamal take over" do
      unit = text.call("systemd/fastrack.service")
      file = flag(unit[/^ExecStart=(.*)$/, 1].split, "-P")
      expect(File.dirname(file)).to eq("/run/#{unit[/^RuntimeDirectory=(.*)$/, 1]}")
      # A folder that systemd makes for the service is gone with it, and the socket's is the other unit's.
      expect(File.dirname(text.call("systemd/fastrack.socket")[/^ListenStream=(.*)$/, 1])).not_to eq(File.dirname(file))
      image = dockerfile
      file = flag(image.fetch("CMD"), "-P")
      expect(image.fetch("RUN").last[/\Ainstall -d -o rails -g rails (.*)\z/, 1].split).to include(File.dirname(file))
      %w[compose monitoring].each do |name|
        app = yaml.call("#{name}/compose.yml").first.dig("services", "app")
        expect([flag(app["command"], "-P"), app["volumes"].grep(/#{File.dirname(file)}/)]).to eq([file, []])
      end
      # Where the command finds it, without its name.
      expect([file, yaml.call("kamal/deploy.yml").first.dig("aliases", "status")]).to eq([Fastrack::Control::USUAL_PID, 'app exec --reuse "bundle exec fastrack status"'])
    end

    it "have one in a volume of the pod, as the root file system is read-only" do
      map, deployment, = yaml.call("kubernetes/app.yaml")
      file = File.expand_path(settings(map.dig("data", "fastrack.rb")).fetch(:Pid), "/rails")
      container = deployment.dig("spec", "template", "spec", "containers").first
      mount = container["volumeMounts"].find { |one| one["mountPath"] == File.dirname(file) }
      volume = deployment.dig("spec", "template", "spec", "volumes").find { |one| one["name"] == mount["name"] }
      expect([container.dig("securityContext", "readOnlyRootFilesystem"), mount["readOnly"], volume]).to match([true, nil, include("emptyDir")])
    end

    it "have one in the dyno's folder, by which `fastrack status` finds it", linux: "the monitor" do
      server = boot("heroku")
      server.await_workers(2)
      output, status = Open3.capture2e(Server::CLEAN_ENVIRONMENT, RbConfig.ruby, "-w", Server::COMMAND, "status", "-P", "app.pid", chdir: @dir)
      expect([output, status.exitstatus]).to match([/^Fastrack \S+  pid #{server.master}  /, 0])
    end
  end

  describe "in docker/" do
    it "compile in a stage that has cargo and libclang, and leave them there" do
      stages = text.call("docker/Dockerfile").split(/^FROM /).drop(1).to_h { |stage| [stage[/\A.* AS (\w+)$/, 1] || "last", stage.gsub(/^#.*\n/, "")] }
      expect([stages.keys, stages["build"]]).to match([%w[base build last], /apt-get install .*\bcargo\b.*\blibclang-dev\b.*bundle install/m])
      expect(stages.values_at("base", "last").join).not_to match(/cargo|clang|build-essential/)
      expect(stages["last"]).to include("COPY --from=build /usr/local/bundle", "COPY --from=build --chown=rails:rails /rails /rails")
    end

    it "have a health check that says whether the image's server is ready", linux: "the monitor" do
      check, file = dockerfile.then { |image| [image.fetch("HEALTHCHECK"), image.fetch("CMD").last] }
      healthy = -> { system({ "RUBYOPT" => nil }, RbConfig.ruby, *check.drop(1), chdir: @dir, err: File::NULL) }
      expect([check.first, healthy.call]).to eq(["ruby", false])
      FileUtils.mkdir_p(File.join(@dir, File.dirname(file)))
      write("hold", "")
      server = Server.start(ru: "run ->(_env) { [200, {}, []] }", unix: true, options: { MaxWorkers: 1, Pid: File.join(@dir, file) }, config: <<~RUBY)
        after_fork { sleep 0.01 while File.exist?(#{File.join(@dir, "hold").inspect}) }
      RUBY
      eventually { File.socket?(File.join(@dir, "tmp/pids/server.control")) }
      expect(healthy.call).to be(false)
      File.unlink(File.join(@dir, "hold"))
      eventually(&healthy)
      server.stop
      expect(healthy.call).to be(false)
    end

    it "have an entrypoint that prepares the database before the server, and for nothing else, and becomes the command" do
      write("bin/rails", "#!/bin/sh\necho rails \"$@\"\n", 0o755)
      write("bin/bundle", "#!/bin/sh\necho \"$$ bundle $*\"\n", 0o755)
      entrypoint = File.join(examples, "docker/docker-entrypoint")
      run = lambda do |*command|
        IO.popen({ "PATH" => "#{@dir}/bin:#{ENV.fetch("PATH")}" }, [entrypoint, *command], chdir: @dir) { |io| io.read.sub(io.pid.to_s, "PID") }
      end
      image = dockerfile
      kubernetes = yaml.call("kubernetes/app.yaml")[1].dig("spec", "template", "spec", "containers").first["args"]
      compose = %w[compose monitoring].map { |name| yaml.call("#{name}/compose.yml").first.dig("services", "app", "command") }
      [image.fetch("CMD"), kubernetes, *compose].each do |command|
        expect(run.call(*command)).to eq("rails db:prepare\nPID #{command.join(" ")}\n")
      end
      [%w[bundle exec rails console], %w[bundle exec fastrack status]].each { |command| expect(run.call(*command)).to eq("PID #{command.join(" ")}\n") }
      expect([image.fetch("ENTRYPOINT"), File.basename(entrypoint)]).to eq([["/rails/bin/docker-entrypoint"], "docker-entrypoint"])
    end
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
