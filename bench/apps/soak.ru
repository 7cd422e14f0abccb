# frozen_string_literal: true

require "fiddle"

# An app that does what apps do, and what they should not. bench/soak asks it for everything.
module SoakApp
  DIR = ENV.fetch("SOAK_DIR")
  # Reopened by USR1.
  LOG = File.open(File.join(DIR, "app.log"), "a").tap { |file| file.sync = true }
  # An old master's workers may be sending it while a new one loads this.
  FILE = File.join(DIR, "file").tap { |path| File.binwrite(path, "f" * 300_000) unless File.exist?(path) }
  # sigwait(3) for no signal at all: native code that never returns and keeps Ruby's lock.
  SIGWAIT = Fiddle::Function.new(Fiddle.dlopen(nil)["sigwait"], [Fiddle::TYPE_VOIDP] * 2, Fiddle::TYPE_INT, need_gvl: true)
  DEEP = ->(depth) { [depth].each { |one| DEEP.call(one + 1) } }

  PAGES = {
    "/" => ->(_) { text(Process.pid.to_s) },
    "/work" => ->(_) { sleep(rand * 0.05) && text("work") },
    "/burn" => ->(_) { 20_000.times { |number| number.to_s } && text("burn") },
    "/large" => ->(_) { [200, { "content-type" => "text/plain", "content-length" => "3000000" }, Array.new(30, "l" * 100_000)] },
    "/named" => ->(env) { named(env) { |name| sleep(rand * 0.02) && (env["rack.input"].read.then { |body| body.empty? || body == name } ? text(name) : text("mixed up")) } },
    "/named_parts" => ->(env) { named(env) { |name| [200, { "content-type" => "text/plain" }, Enumerator.new { |parts| 5.times { parts << name && sleep(rand * 0.005) } }] } },
    "/each" => ->(_) { [200, { "content-type" => "text/plain" }, Enumerator.new { |parts| 30.times { parts << ("e" * 20_000) } }] },
    "/file" => ->(_) { [200, { "content-type" => "text/plain", "content-length" => "300000" }, Sent.new(FILE)] },
    "/body" => ->(env) { env["rack.input"].read.then { |body| text("#{body.bytesize} #{body.sum}") } },
    "/raise" => ->(_) { raise "r" * 10_000 },
    "/deep" => ->(_) { DEEP.call(0) },
    "/memory" => ->(_) { raise NoMemoryError },
    "/exit" => ->(_) { exit!(3) },
    "/segv" => ->(_) { Process.kill(:SEGV, Process.pid) && sleep },
    "/exec" => ->(_) { exec("true") },
    "/daemon" => ->(_) { Process.daemon && sleep(0.3) && exit!(0) },
    "/hang" => ->(_) { sleep },
    "/loop" => ->(_) { loop { 1 + 1 } },
    "/native" => ->(_) { SIGWAIT.call("\0" * 128, "\0" * 8) },
    "/later" => ->(env) { (env["rack.after_reply"] ||= []).push(-> { sleep }) && text("later") },
    "/leave" => ->(_) { system("sleep 0.5 & exec true") && text("leave") },
    "/fork" => ->(_) { Process.detach(fork { sleep(0.3) && exit!(0) }) && text("fork") },
    "/thread" => ->(env) { Thread.new { 20.times { sleep(0.02) && env.each_value(&:to_s) && $stdout.flush } } && text("thread") },
    "/term" => ->(_) { Process.kill(:TERM, Process.pid) && text("term") },
    # Without Ruby's warning, which would wait for a log that is stuck.
    "/encodings" => ->(_) { $VERBOSE = nil; Encoding.default_internal = Encoding.default_external = Encoding::ISO_8859_1 and text("encodings") }
  }.freeze

  # A body that is sent from its file.
  class Sent
    attr_reader :to_path

    def initialize(path)
      @to_path = path
    end

    def each
      yield File.binread(to_path)
    end
  end

  # Which thread has which request: no thread two, and no request another thread.
  HOLDERS = {}
  LOCK = Mutex.new

  module_function

  # Calls the block while the current thread holds the request.
  def hold(env)
    holder = [env.object_id, env["REQUEST_URI"]]
    other = LOCK.synchronize { HOLDERS.key?(Thread.current) ? HOLDERS[Thread.current] : (HOLDERS[Thread.current] = holder) && nil }
    mixed_up("a thread has two requests: #{other.inspect} and #{holder.inspect}") if other
    yield
  ensure
    mixed_up("#{holder.inspect} is #{env["REQUEST_URI"].inspect} now") unless env["REQUEST_URI"] == holder[1]
    LOCK.synchronize { mixed_up("another thread has #{holder.inspect}") unless HOLDERS.delete(Thread.current) == holder }
  end

  # Calls the block with the request's name, which is the thread's as long as it has the request.
  def named(env)
    Thread.current[:soak] = env["QUERY_STRING"]
    yield(env["QUERY_STRING"]).tap { mixed_up("#{Thread.current[:soak]} is not #{env["QUERY_STRING"]}") unless Thread.current[:soak] == env["QUERY_STRING"] }
  end

  def mixed_up(text)
    warn "soak: mixed up: #{text}"
  end

  def text(body)
    [200, { "content-type" => "text/plain", "content-length" => body.bytesize.to_s }, [body]]
  end

  # The hooks: files say whether they hang or fail.
  def hook(name)
    sleep if File.exist?(File.join(DIR, "hang_#{name}"))
    raise "told to fail" if File.exist?(File.join(DIR, "fail_#{name}"))
  end
end

abort "told to fail" if File.exist?(File.join(SoakApp::DIR, "fail_load"))
at_exit { SoakApp.hook("at_exit") }

run lambda { |env|
  SoakApp::LOG.write("#{Process.pid} #{env["PATH_INFO"]}\n")
  SoakApp.hold(env) { SoakApp::PAGES.fetch(env["PATH_INFO"]).call(env) }
}
