# frozen_string_literal: true

# Installs a gem as a user would and serves apps with it: smoke.rb [--bare] GEM RACKUP_FILE=TEXT...
#
# Each app has to answer with a page that contains TEXT. With --bare the system must have nothing to compile with, and no
# network: then the gem brought all that it needs. It needs Ruby and nothing else, and knows nothing of the repository.

require "rbconfig"
require "socket"
require "tmpdir"

# One gem, in a GEM_HOME of its own.
class Smoke
  TOOLS = %w[cc gcc c++ g++ clang tcc zig ld make cargo rustc].freeze
  LISTENING = /Listening on 127\.0\.0\.1:(\d+) /.freeze

  # SIOCSIFFLAGS of <linux/sockios.h>, and IFF_UP | IFF_LOOPBACK | IFF_RUNNING.
  SET_FLAGS = 0x8914
  UP = 0x49

  SECONDS = 60
  # Seconds of CPU time, which other programs of the machine do not add to.
  INSTALL_CPU = 2

  def initialize(package, bare:)
    @package = package
    @bare = bare
  end

  def run(apps)
    check_bareness if @bare
    Dir.mktmpdir("smoke") do |home|
      @home = home
      install
      apps.each { |app| serve(*app.split("=", 2)) }
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

  def install
    began = now
    before = Process.times
    command(RbConfig.ruby, "-S", "gem", "install", "--local", "--no-document", @package)
    after = Process.times
    cpu = after.cutime + after.cstime - before.cutime - before.cstime
    puts format("smoke: Ruby %s on %s, RubyGems %s: installed %s in %.1f s (%.1f s of CPU time)",
                RUBY_VERSION, RUBY_PLATFORM, Gem::VERSION, File.basename(@package), now - began, cpu)
    abort "smoke: more than #{INSTALL_CPU} s: something was compiled" if @bare && cpu > INSTALL_CPU
  end

  def command(*words)
    output = IO.popen([environment, *words, in: File::NULL, err: %i[child out]], &:read)
    abort "smoke: #{words.join(" ")} failed:\n#{output}" unless $?.success?
    output
  end

  def environment
    { "GEM_HOME" => @home, "GEM_PATH" => [@home, *Gem.path].join(":"), "RUBYOPT" => nil, "RUBYLIB" => nil, "BUNDLE_GEMFILE" => nil, "RACK_ENV" => "production", "LANG" => "C.UTF-8" }
  end

  def serve(app, text)
    log = File.join(@home, "log")
    words = [RbConfig.ruby, File.join(@home, "bin/fastrack"), "-E", "production", "-o", "127.0.0.1", "-p", "0", "-w", "2", app]
    @server = spawn(environment, *words, in: File::NULL, %i[out err] => log)
    check(await_port(log), text, log)
    Process.kill(:TERM, @server)
    status = wait
    abort "smoke: #{app}: #{status}\n#{File.read(log)}" unless status.success?
    puts "smoke: #{app}: served"
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
    port.to_i
  end

  # New connections, each answered by either worker.
  def check(port, text, log)
    10.times do
      page = get(port)
      abort "smoke: the page has no #{text}:\n#{page}\n#{File.read(log)}" unless page.start_with?("HTTP/1.1 200") && page.include?(text)
    end
  end

  def get(port)
    TCPSocket.open("127.0.0.1", port) do |socket|
      socket.write("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
      socket.wait_readable(SECONDS) || abort("smoke: no answer")
      socket.read.force_encoding("UTF-8")
    end
  end

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

require "io/wait"
bare = ARGV.delete("--bare")
package = ARGV.shift || abort("usage: smoke.rb [--bare] GEM RACKUP_FILE=TEXT...")
Smoke.new(File.expand_path(package), bare: bare).run(ARGV)
