# frozen_string_literal: true

require_relative "../../lib/fastrack/configuration/config_file"

# What docs/upgrading.md and docs/deploy.md say, done as it is written there, in another folder than /srv/app.
RSpec.describe "Deploys", once: "commands, signals and sockets" do
  include Folder

  text, deploying = %w[upgrading deploy].map { |page| File.read(File.join(Server::ROOT, "docs/#{page}.md"), encoding: "UTF-8") }
  section = text[/^## Capistrano.*?(?=^## )/m]

  # The documentation's words for this folder and this machine.
  def here(words)
    words.gsub(%r{/srv/app|/run/app}, @dir).gsub("bundle exec fastrack", "#{RbConfig.ruby} -w #{Server::COMMAND}")
         .gsub("bundle exec rackup", "#{RbConfig.ruby} -w -I #{File.join(Server::ROOT, "lib")} -S rackup")
  end

  def release(version, config)
    folder = "#{@dir}/releases/#{version}"
    FileUtils.mkdir_p("#{folder}/config")
    File.write("#{folder}/config.ru", "run ->(_env) { [200, {}, ['#{version} ' + Process.ppid.to_s]] }")
    File.write("#{folder}/config/fastrack.rb", config)
    # In one step, as Capistrano does it.
    File.symlink("releases/#{version}", "#{@dir}/next")
    File.rename("#{@dir}/next", "#{@dir}/current")
  end

  # Ends a daemon, which is nobody's child here.
  def end_master(pid)
    Process.kill(:TERM, pid) if pid.positive?
    eventually { ProcessTable.entry(pid).nil? }
  rescue Eventually::TimedOut
    # With the new master, which is its child.
    [pid, *ProcessTable.children(pid)].each { |one| Process.kill(:KILL, one) }
    raise
  end

  def ask
    response = HttpResponse.ask(UNIXSocket.new("#{@dir}/shared/tmp/app.sock"))
    raise "status #{response.status}" unless response.status == 200

    response.body.split
  end

  it "C1 behind a link: reload and restart bring the release that the link leads to by then, and no request is lost" do
    config = here(section[/^```ruby\n(.*?)^```$/m, 1])
    %w[tmp log].each { |name| FileUtils.mkdir_p("#{@dir}/shared/#{name}") }
    release("one", config)
    expect(system(Server::CLEAN_ENVIRONMENT, "sh", "-c", here(section[/`(cd [^`]+ -e production)`/m, 1].tr("\n", " ")))).to be(true)
    version, master = ask
    expect(version).to eq("one")
    # The log is stdout, too.
    log = "#{@dir}/shared/log/app.log"
    eventually { File.read(log).include?("is ready") }
    release("two", config)
    expect(deploy("reload", "two")).to eq([["two", master]])
    release("three", config)
    answers = deploy("restart", "three")
    fresh = File.read("#{@dir}/shared/tmp/app.pid").to_i
    expect(answers).to eq([["three", fresh.to_s]])
    eventually { ProcessTable.entry(master.to_i).nil? }
  ensure
    end_master(fresh || master.to_i)
  end

  # Runs the documentation's command, which waits until the new release serves.
  #
  # @return [Array<Array(String, String)>] other answers than before, once each
  define_method(:deploy) do |name, version|
    before = ask
    command = here(section[/^    (fastrack #{name} .*?) *#/, 1]).sub("fastrack", "#{RbConfig.ruby} -w #{Server::COMMAND}")
    pid = spawn(Server::CLEAN_ENVIRONMENT, command, out: File::NULL)
    answers = []
    answers << ask until Process.wait(pid, Process::WNOHANG)
    expect(Process.last_status.exitstatus).to eq(0)
    # A worker of the old release may take some more.
    eventually { (answers << ask).last.first == version }
    answers.uniq - [before]
  end

  it "C1 with Unicorn's recipe: the new master's first worker ends the old master, and no request is lost" do
    section = text[/^## Unicorn's recipe.*?(?=^## )/m]
    %w[config tmp].each { |name| FileUtils.mkdir_p("#{@dir}/#{name}") }
    # Without what Fastrack would do by itself.
    File.write("#{@dir}/config/unicorn.rb", "#{here(section[/^```ruby\n(.*?)^```$/m, 1])}\nauto_quit false\n")
    File.write("#{@dir}/config.ru", "run ->(_env) { [200, {}, [Process.ppid.to_s]] }")
    expect(system(Server::CLEAN_ENVIRONMENT, command(section, "bundle exec fastrack"), chdir: @dir)).to be(true)
    old = File.read("#{@dir}/tmp/unicorn.pid").to_i
    clients = ClientLoop.kept(behind("#{@dir}/tmp/unicorn.sock"), path: "/") do |loop|
      expect(system(command(section, "kill -USR2"))).to be(true)
      eventually(20) { ProcessTable.entry(old).nil? }
      loop.await_answers
    end
    fresh = File.read("#{@dir}/tmp/unicorn.pid").to_i
    expect([clients.failures, clients.bodies.uniq]).to eq([[], [old.to_s, fresh.to_s]])
  ensure
    end_master(fresh || old.to_i)
  end

  it "C4 behind nginx, which sends static files itself" do
    skip "nginx is not installed" unless system("command -v nginx >/dev/null")
    FileUtils.mkdir_p("#{@dir}/public")
    File.write("#{@dir}/public/a.txt", "static")
    server = Server.start(ru: Rackups::ENV_LINES, options: { Host: nil, Port: nil, Path: "#{@dir}/app.sock" })
    # The port is anybody's; a socket in this folder is not.
    nginx = HttpNginx.new(nil, servers: here(deploying[/^```nginx\n(.*?)^```$/m, 1]).sub(/listen 80;/) { "listen unix:#{@dir}/nginx.sock;" },
                               path: "#{@dir}/nginx.sock")
    static, dynamic = %w[/a.txt /b.txt].map do |path|
      nginx.connect { |socket| socket.write("GET #{path} HTTP/1.0\r\nHost: site\r\n\r\n") && HttpResponse.parse(socket.read) }
    end
    expect([static.status, static.body]).to eq([200, "static"])
    expect(dynamic.body).to include('PATH_INFO="/b.txt"', 'HTTP_HOST="site"', 'HTTP_X_FORWARDED_PROTO="http"')
    expect(server.stop.exitstatus).to eq(0)
  ensure
    nginx&.stop
  end

  # The server that start_server has the socket of, for clients.
  def behind(path) = Object.new.tap { |server| server.define_singleton_method(:connect) { UNIXSocket.new(path) } }

  # An indented command of the documentation, with its continuation lines.
  def command(text, beginning) = here(text[/^    (#{Regexp.escape(beginning)}.*?[^\\])$/m, 1])

  it "A8 by start_server: no request is lost, not even on connections that were idle for a second" do
    skip "start_server is not installed (Debian: libserver-starter-perl)" unless system("command -v start_server >/dev/null")
    section = text[/^## start_server$.*\z/m].sub("--interval=10", "--interval=1")
    FileUtils.mkdir_p("#{@dir}/config")
    File.write("#{@dir}/config/fastrack.rb", "max_workers 2\nmax_request_per_child 0\n")
    File.write("#{@dir}/config.ru", "run ->(_env) { [200, {}, ['one']] }")
    log = "#{@dir}/log"
    pid = spawn(Server::CLEAN_ENVIRONMENT, "exec #{command(section, "start_server --path")}", chdir: @dir, out: log, err: log)
    eventually(20, -> { File.read(log) }) { File.read(log).include?("Fastrack is ready Workers:2") }
    clients = ClientLoop.kept(behind("#{@dir}/app.sock"), clients: 8, path: "/", pause: 1.5) do |loop|
      File.write("#{@dir}/config.ru", "run ->(_env) { [200, {}, ['two']] }")
      expect(system(Server::CLEAN_ENVIRONMENT, command(section, "start_server --restart"), chdir: @dir)).to be(true)
      eventually(20) { loop.bodies.last == "two" }
    end
    expect([clients.failures, clients.renewals]).to eq([[], 8])
    Process.kill(:TERM, pid)
    expect(Process.wait2(pid).last.exitstatus).to eq(0)
    pid = nil
  ensure
    if pid
      Process.kill(:TERM, pid)
      Process.wait(pid)
    end
  end

  it "C2 examples/unicorn.rb is read as a unicorn.rb" do
    found = Fastrack::ConfigFile.load(File.join(Server::ROOT, "examples/unicorn.rb"))
    expect(found).to include(MaxWorkers: 4, RequestTimeout: 30, Pid: "#{Server::ROOT}/tmp/app.pid", WorkingDirectory: Server::ROOT)
    expect(found[:Listen].map(&:to_s)).to eq(["#{Server::ROOT}/tmp/app.sock", "127.0.0.1:8080"])
  end
end
