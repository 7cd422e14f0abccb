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

  module_function

  def text(body)
    [200, { "content-type" => "text/plain", "content-length" => body.bytesize.to_s }, [body]]
  end

  # What hooks do, which depends on the files that are there.
  def hook(name)
    sleep if File.exist?(File.join(DIR, "hang_#{name}"))
    raise "told to fail" if File.exist?(File.join(DIR, "fail_#{name}"))
  end
end

abort "told to fail" if File.exist?(File.join(SoakApp::DIR, "fail_load"))
at_exit { SoakApp.hook("at_exit") }

run lambda { |env|
  SoakApp::LOG.write("#{Process.pid} #{env["PATH_INFO"]}\n")
  SoakApp::PAGES.fetch(env["PATH_INFO"]).call(env)
}
