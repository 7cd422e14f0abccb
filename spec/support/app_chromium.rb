# frozen_string_literal: true

require "fileutils"
require "json"
require "net/http"
require "tmpdir"
require_relative "eventually"

# A headless Chromium with a page open. It finds no other host than 127.0.0.1.
class AppChromium
  FLAGS = %w[
    --headless --enable-logging=stderr --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-sync --remote-debugging-port=0
    --disable-background-networking --disable-component-update --host-resolver-rules=MAP\ *\ ~NOTFOUND\ ,\ EXCLUDE\ 127.0.0.1
  ].freeze

  def self.program(name = "chromium")
    ENV.fetch("PATH", "").split(":").map { |dir| File.join(dir, name) }.find { |path| File.executable?(path) }
  end

  def self.driver = program("chromedriver")

  def self.missing = ("no chromium here; bin/lib/chromium.sh brings one" unless program)
  def self.driver_missing = ("no chromedriver here; bin/lib/chromium.sh brings one" unless driver)

  # A page that is driven by Chromium's own driver (WebDriver).
  class Driven
    def initialize(http, session)
      @http = http
      @session = session
    end

    def visit(url) = post("url", url: url)
    def run(script) = post("execute/sync", script: script, args: [])

    # As on a telephone of this width, in CSS pixels: a window is never so narrow.
    def narrow(width)
      post("goog/cdp/execute", cmd: "Emulation.setDeviceMetricsOverride", params: { width: width, height: 844, deviceScaleFactor: 1, mobile: true })
    end

    private

    def post(command, body)
      JSON.parse(@http.post("#{@session}/#{command}", JSON.generate(body), "content-type" => "application/json").body).fetch("value")
    end
  end

  def self.drive
    Dir.mktmpdir("fastrack-chromium") do |dir|
      pid = spawn({ "HOME" => dir }, driver, "--port=0", out: File.join(dir, "log"), err: %i[child out], pgroup: true)
      port = Eventually.eventually { File.read(File.join(dir, "log"))[/successfully on port (\d+)/, 1] }
      Net::HTTP.start("127.0.0.1", port.to_i, read_timeout: 60) do |http|
        arguments = FLAGS.grep_v(/remote-debugging/) + ["--user-data-dir=#{dir}/profile"]
        wanted = { capabilities: { alwaysMatch: { "goog:chromeOptions": { args: arguments, binary: program } } } }
        session = "/session/#{JSON.parse(http.post("/session", JSON.generate(wanted), "content-type" => "application/json").body).dig("value", "sessionId")}"
        yield Driven.new(http, session)
        http.delete(session)
      end
    ensure
      Process.kill(:KILL, -pid)
      Process.wait(pid)
      Eventually.eventually { ProcessTable.group(pid).empty? }
    end
  end

  def initialize(url)
    @dir = Dir.mktmpdir("fastrack-chromium")
    @pid = spawn({ "HOME" => @dir }, self.class.program, *FLAGS, "--user-data-dir=#{File.join(@dir, "profile")}", url,
                 in: File::NULL, out: File.join(@dir, "log"), err: %i[child out], pgroup: true)
  end

  # What it says for itself, mostly about what it does without.
  def log = File.read(File.join(@dir, "log")).scrub

  def close
    Process.kill(:KILL, -@pid)
    Process.wait(@pid)
    # They may write into the profile until they are gone.
    Eventually.eventually { ProcessTable.group(@pid).empty? }
    FileUtils.remove_entry(@dir)
  end
end
