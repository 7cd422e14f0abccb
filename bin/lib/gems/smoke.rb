# frozen_string_literal: true

# Installs a gem as a user would and serves apps with it: smoke.rb [--bare] GEM RACKUP_FILE=TEXT...
# Deploys an app as Heroku's buildpack does: smoke.rb --deploy EXAMPLE=TEXT GEM
#
# Each app has to answer with a page that contains TEXT. With --bare the system must have nothing to compile with, and no
# network: then the gem brought all that it needs. It needs Ruby and nothing else, and knows nothing of the repository.

require "fileutils"
require "net/http"
require "rbconfig"
require "rubygems/package"
require "socket"
require "tmpdir"

# A gem where its users install it.
class Smoke
  LISTENING = /Listening on \S+:(\d+) /.freeze
  SECONDS = 60
  CLEAN = { "RUBYOPT" => nil, "RUBYLIB" => nil, "BUNDLE_GEMFILE" => nil, "GEM_HOME" => nil, "GEM_PATH" => nil, "RACK_ENV" => "production", "LANG" => "C.UTF-8" }.freeze

  def initialize(package)
    @package = File.expand_path(package)
  end

  private

  def command(environment, *words, dir: Dir.pwd)
    output = IO.popen([CLEAN.merge(environment), *words, { chdir: dir, in: File::NULL, err: %i[child out] }], &:read)
    $?.success? ? output : abort("smoke: #{words.join(" ")} failed:\n#{output}")
  end

  # Starts a server, asks it on new connections, each answered by either worker, and ends it.
  def serve(environment, *words, text, dir: Dir.pwd, log: File.join(@home, "log"))
    @server = spawn(CLEAN.merge(environment), *words, chdir: dir, in: File::NULL, %i[out err] => log)
    port = await_port(log)
    10.times do
      page = Net::HTTP.get_response(URI("http://127.0.0.1:#{port}/"))
      body = page.body.force_encoding("UTF-8")
      abort "smoke: the page has no #{text}:\n#{body}\n#{File.read(log)}" unless page.code == "200" && body.include?(text)
    end
    Process.kill(:TERM, @server)
    status = wait
    abort "smoke: #{words.last}: #{status}\n#{File.read(log)}" unless status.success?
    puts "smoke: #{words.last}: served"
  ensure
    Process.kill(:KILL, @server) && wait if @server
  end

  def wait(flags = 0)
    _, status = Process.wait2(@server, flags)
    @server = nil if status
    status
  end

  def await_port(log)
    deadline = now + SECONDS
    until (port = File.read(log)[LISTENING, 1])
      abort "smoke: the server has ended:\n#{File.read(log)}" if wait(Process::WNOHANG)
      abort "smoke: no server after #{SECONDS} s:\n#{File.read(log)}" if now > deadline

      sleep 0.05
    end
    port
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

# In a GEM_HOME of its own.
class Installation < Smoke
  TOOLS = %w[cc gcc c++ g++ clang tcc zig ld make cargo rustc].freeze

  # SIOCSIFFLAGS of <linux/sockios.h>, and IFF_UP | IFF_LOOPBACK | IFF_RUNNING.
  SET_FLAGS = 0x8914
  UP = 0x49

  # Seconds of CPU time, which other programs of the machine do not add to.
  INSTALL_CPU = 2

  def run(apps, bare:)
    check_bareness if bare
    Dir.mktmpdir("smoke") do |home|
      @home = home
      gems = { "GEM_HOME" => home, "GEM_PATH" => [home, *Gem.path].join(":") }
      install(gems, bare)
      apps.each do |app|
        file, text = app.split("=", 2)
        serve(gems, RbConfig.ruby, File.join(home, "bin/fastrack"), *%w[-E production -o 127.0.0.1 -p 0 -w 2], file, text)
      end
    end
  end

  private

  def check_bareness
    found = ENV.fetch("PATH").split(":").product(TOOLS).map { |dir, tool| File.join(dir, tool) }.select { |file| File.exist?(file) }
    found += Dir.glob(["/usr/lib/**/libclang{,-*}.so*", "#{RbConfig::CONFIG["rubyhdrdir"]}/ruby.h"])
    abort "smoke: not bare, there is #{found.join(", ")}" unless found.empty?
    networks = Socket.getifaddrs.map(&:name).uniq - ["lo"]
    abort "smoke: not bare, there is a network: #{networks.join(", ")}" unless networks.empty?

    # A network namespace begins with its loopback interface down.
    UDPSocket.new.ioctl(SET_FLAGS, ["lo", UP].pack("a16s!x16"))
  end

  def install(gems, bare)
    before = Process.times
    command(gems, RbConfig.ruby, "-S", "gem", "install", "--local", "--no-document", @package)
    after = Process.times
    cpu = after.cutime + after.cstime - before.cutime - before.cstime
    puts format("smoke: Ruby %s on %s, RubyGems %s: installed %s in %.1f s of CPU time", RUBY_VERSION, RUBY_PLATFORM, Gem::VERSION, File.basename(@package), cpu)
    abort "smoke: more than #{INSTALL_CPU} s: something was compiled" if bare && cpu > INSTALL_CPU
  end
end

# `bundle install` with BUNDLE_DEPLOYMENT, from vendor/cache, because there is no network; then the Procfile's command with PORT and
# WEB_CONCURRENCY. The system has Ruby, Bundler and Rack.
class Deployment < Smoke
  # As the buildpack sets them.
  SETTINGS = { "BUNDLE_DEPLOYMENT" => "1", "BUNDLE_PATH" => "vendor/bundle", "BUNDLE_WITHOUT" => "development:test" }.freeze

  def run(example, text)
    Dir.mktmpdir("deploy") do |dir|
      @home = dir
      FileUtils.cp_r("#{File.expand_path(example)}/.", dir)
      vendor("#{dir}/vendor/cache")
      install(dir)
      port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
      dyno = { "HOME" => dir, "PORT" => port.to_s, "WEB_CONCURRENCY" => "2", "DYNO" => "web.1" }
      serve(SETTINGS.merge(dyno), "sh", "-c", "exec #{File.read("#{dir}/Procfile")[/^web: (.+)$/, 1]}", text, dir: dir)
    end
  end

  private

  # Puts what `bundle package` leaves there: this gem, and Rack as the system has it.
  def vendor(cache)
    FileUtils.mkdir_p(cache)
    FileUtils.cp(@package, cache)
    lib = File.dirname(Gem.find_files("rack.rb").first)
    Dir.mktmpdir do |stage|
      FileUtils.mkdir("#{stage}/lib")
      FileUtils.cp_r(["#{lib}/rack.rb", "#{lib}/rack"], "#{stage}/lib")
      Dir.chdir(stage) do
        rack = Gem::Specification.new("rack", Gem::Specification.find_by_name("rack").version) do |spec|
          spec.authors, spec.summary, spec.files = ["Rack's authors"], "Rack", Dir.glob("lib/**/*.rb")
        end
        Gem::Package.build(rack, true, false, "#{cache}/#{rack.file_name}")
      end
    end
  end

  # First as a developer, for the Gemfile.lock; the other files of that are not deployed. Bundler 4 notes checksums
  # there, of gems that it installs, and not of those that the system has: then it would want to note them when it deploys.
  def install(dir)
    bundle(dir, { "BUNDLE_PATH" => "developer" }, "install", "--local")
    FileUtils.rm_rf(["#{dir}/.bundle", "#{dir}/developer"])
    bundle(dir, SETTINGS, "install", "--local")
    inside = bundle(dir, SETTINGS, "exec", "ruby", "-e", 'puts Gem.loaded_specs.values_at("rhebok-rs", "rack").map(&:full_gem_path)').lines(chomp: true)
    abort "smoke: not from vendor/bundle: #{inside}" unless inside.all? { |path| path.start_with?("#{File.realpath(dir)}/vendor/bundle/") }
  end

  def bundle(dir, settings, *words) = command({ "HOME" => dir, **settings }, "bundle", *words, dir: dir)
end

bare = ARGV.delete("--bare")
example = ARGV.shift(2).last if ARGV.first == "--deploy"
package = ARGV.shift || abort("usage: smoke.rb [--bare] GEM RACKUP_FILE=TEXT... | --deploy EXAMPLE=TEXT GEM")
example ? Deployment.new(package).run(*example.split("=", 2)) : Installation.new(package).run(ARGV, bare: bare)
