# frozen_string_literal: true

# Deploys the app of examples/heroku with a platform's gem as Heroku's buildpack does: deploy.rb GEM EXAMPLE
#
# `bundle install` with BUNDLE_DEPLOYMENT, from vendor/cache, because there is no network; then the Procfile's command with PORT and
# WEB_CONCURRENCY set; in the end TERM to every process of it at once, while requests are being answered. The system has Ruby,
# Bundler and Rack, and nothing to compile with (smoke.rb sees to that).

require "fileutils"
require "io/wait"
require "rubygems/package"
require "rubygems/user_interaction"
require "socket"
require "tmpdir"

# One app, with a folder of its own.
class Deployment
  LISTENING = /Listening on 0\.0\.0\.0:(\d+) /.freeze
  SECONDS = 60
  WORKERS = 2

  # Requests that last, to see what becomes of them.
  SLOW = <<~'RUBY'
    use(Class.new do
      def initialize(app) = @app = app

      def call(env)
        if env["PATH_INFO"] == "/slow"
          File.write("begun.#{Process.pid}", "")
          sleep 1
        end
        @app.call(env)
      end
    end)
  RUBY

  def initialize(package, example)
    @package = package
    @example = example
  end

  def run
    Dir.mktmpdir("deploy") do |dir|
      @dir = dir
      FileUtils.cp_r("#{@example}/.", dir)
      File.write("#{dir}/config.ru", SLOW + File.read("#{dir}/config.ru"))
      vendor
      install
      serve
    end
  end

  private

  # What `bundle package` leaves: this gem, and what its dependency consists of here.
  def vendor
    cache = "#{@dir}/vendor/cache"
    FileUtils.mkdir_p(cache)
    FileUtils.cp(@package, cache)
    found = Gem::Specification.find_by_name("rack")
    lib = File.dirname(Gem.find_files("rack.rb").first)
    Dir.mktmpdir("rack") do |stage|
      FileUtils.mkdir("#{stage}/lib")
      FileUtils.cp_r(["#{lib}/rack.rb", "#{lib}/rack"], "#{stage}/lib")
      Dir.chdir(stage) { pack(found.version, cache) }
    end
  end

  def pack(version, folder)
    specification = Gem::Specification.new("rack", version) do |spec|
      spec.authors = ["Rack's authors"]
      spec.summary = "Rack, as this system has it"
      spec.files = Dir.glob("lib/**/*.rb")
    end
    Gem::DefaultUserInteraction.use_ui(Gem::SilentUI.new) { Gem::Package.build(specification, true, false, "#{folder}/#{specification.file_name}") }
  end

  # First as a developer, for the Gemfile.lock; what that leaves apart from it is no part of what is deployed. Bundler 4 notes checksums
  # there, of gems that it installs, and not of those that the system has: then it would want to note them when it deploys.
  def install
    bundle({ "BUNDLE_PATH" => "developer" }, "install", "--local")
    FileUtils.rm_rf(["#{@dir}/.bundle", "#{@dir}/developer"])
    bundle(settings, "install", "--local")
    inside = bundle(settings, "exec", "ruby", "-e", 'puts Gem.loaded_specs.values_at("rhebok-rs", "rack").map(&:full_gem_path)').lines(chomp: true)
    abort "deploy: not from vendor/bundle: #{inside}" unless inside.all? { |path| path.start_with?("#{File.realpath(@dir)}/vendor/bundle/") }
    puts "deploy: Bundler #{bundle({}, "--version")[/[\d.]+/]} installed #{inside.map { |path| File.basename(path) }.join(" and ")}, from nothing but vendor/cache"
  end

  # As the buildpack sets them.
  def settings
    { "BUNDLE_DEPLOYMENT" => "1", "BUNDLE_PATH" => "vendor/bundle", "BUNDLE_WITHOUT" => "development:test" }
  end

  def bundle(more, *words)
    output = IO.popen([environment.merge(more), "bundle", *words, { chdir: @dir, in: File::NULL, err: %i[child out] }], &:read)
    abort "deploy: bundle #{words.join(" ")} failed:\n#{output}" unless $?.success?
    output
  end

  def environment
    { "RUBYOPT" => nil, "RUBYLIB" => nil, "BUNDLE_GEMFILE" => nil, "GEM_HOME" => nil, "GEM_PATH" => nil, "HOME" => @dir, "LANG" => "C.UTF-8" }
  end

  def serve
    port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    words = File.read("#{@dir}/Procfile")[/^web: (.+)$/, 1]
    dyno = { "PORT" => port.to_s, "WEB_CONCURRENCY" => WORKERS.to_s, "DYNO" => "web.1" }
    @server = spawn(environment.merge(settings, dyno), "sh", "-c", "exec #{words}", chdir: @dir, in: File::NULL, %i[out err] => log)
    await("it listens") { File.read(log)[LISTENING, 1] == port.to_s }
    await("there are #{WORKERS} workers") { processes.size == WORKERS + 1 }
    stop(port)
  ensure
    processes.each { |pid| Process.kill(:KILL, pid) } if @server
  end

  # All workers are busy, and others wait.
  def stop(port)
    slow = Array.new(WORKERS) { Thread.new { get(port, "/slow") } }
    await("all are busy") { Dir.glob("#{@dir}/begun.*").size == WORKERS }
    waiting = Array.new(8) { Thread.new { get(port, "/") } }
    began = now
    processes.each { |pid| Process.kill(:TERM, pid) }
    pages = [*slow, *waiting].map(&:value)
    _, status = Process.wait2(@server)
    @server = nil
    wrong = pages.grep_v(/\AHTTP\/1\.1 200 .*Dyno web\.1, worker \d+\n\z/m)
    abort "deploy: TERM lost #{wrong.size} of #{pages.size} requests: #{wrong}\n#{File.read(log)}" unless wrong.empty?
    abort "deploy: #{status}\n#{File.read(log)}" unless status.success?
    puts format("deploy: served on $PORT; TERM to every process at once: all %d requests answered, over in %.1f s", pages.size, now - began)
  end

  def log
    "#{@dir}/log"
  end

  # The server's, by their parents in /proc.
  def processes
    parents = Dir.glob("/proc/[0-9]*/stat").filter_map do |file|
      text = File.read(file)
      [text.to_i, text[/\) \S (\d+)/, 1].to_i]
    rescue SystemCallError
      nil
    end
    [@server, *parents.select { |_, parent| parent == @server }.map(&:first)]
  end

  def get(port, path)
    TCPSocket.open("127.0.0.1", port) do |socket|
      socket.write("GET #{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
      socket.wait_readable(SECONDS) ? socket.read : ""
    end
  rescue SystemCallError => e
    e.message
  end

  def await(what)
    deadline = now + SECONDS
    until yield
      abort "deploy: the server has ended:\n#{File.read(log)}" if Process.wait(@server, Process::WNOHANG)
      abort "deploy: not within #{SECONDS} s: #{what}\n#{File.read(log)}" if now > deadline

      sleep 0.02
    end
  end

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

Deployment.new(*ARGV.first(2).map { |path| File.expand_path(path) }).run if ARGV.size == 2 || abort("usage: deploy.rb GEM EXAMPLE")
