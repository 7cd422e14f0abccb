# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/reexec_helpers"
require_relative "../../lib/fastrack/version"

# What an operator reads afterwards: what the server was told, and how long that took.
RSpec.describe "The log of a server", once: "the master's own lines" do
  def ready(config = "", **options)
    options = { MaxWorkers: 1, **options }
    Server.ready(ru: Rackups::PID, config: "#{config}\n", options: options, environment: "production")
  end

  # Its lines on stderr from there on.
  def own_lines(server)
    server.log.lines(chomp: true).grep(/\Afastrack: /).map { |line| line.delete_prefix("fastrack: ").gsub(/\d+\.\d s/, "N s") }
  end

  it "begins with what runs, by which configuration, and where" do
    server = ready("max_workers 2", MaxWorkers: nil, MaxThreads: 3, Pid: "app.pid")
    ruby = Regexp.escape("#{RUBY_ENGINE} #{RUBY_VERSION}")
    expect(server.log).to match(/^Fastrack starts Listening on 127\.0\.0\.1:\d+ Pid:#{server.pid}
Fastrack #{Fastrack::VERSION}, #{ruby}(?: with YJIT)?, production: 2 workers of 3 threads
\* ConfigFile: #{server.file("fastrack.rb")}
\* Monitor: #{server.file("app.control")}$/)
  end

  it "says one worker of one thread where that is what there is, and what there is not" do
    expect(Server.ready(ru: Rackups::PID, options: { MaxWorkers: 1 }).log)
      .to match(/^Fastrack .*: 1 worker of 1 thread\n\* ConfigFile: none\n\* Monitor: none$/)
  end

  %i[TERM QUIT INT].each do |signal|
    it "has a line when #{signal} comes, and one when the server has stopped, with seconds" do
      server = ready(GracefulTimeout: 7)
      server.stop(signal)
      expect(own_lines(server)).to eq(["#{signal}: stopping, requests have up to 7 s (GracefulTimeout)", "stopped, N s after #{signal}"])
    end
  end

  it "has a line when it drains, and when a second INT ends that" do
    server = ready(DrainDelay: 60)
    server.signal(:TERM)
    server.await_log("fastrack: TERM: serving on for 60 s (DrainDelay)\n")
    # Two at once may be one.
    eventually { server.ended? || (server.signal(:INT) && false) }
    expect(own_lines(server).grep(/\A(?:TERM|INT|stopped)\b/))
      .to eq(["TERM: serving on for 60 s (DrainDelay)", "INT: stopping at once, the workers are killed", "stopped, N s after INT"])
  end

  it "has a line for each of HUP, TTIN, TTOU, WINCH and USR1, in one stream" do
    server = ready
    { HUP: "replacing 1 worker (generation 2)", TTIN: "changing to 2 workers", TTOU: "changing to 1 worker", WINCH: "changing to 0 workers",
      USR1: "log files are reopened" }.each do |signal, text|
      server.signal(signal)
      server.await_log("fastrack: #{signal}: #{text}\n")
    end
  end

  it "says of USR1 that it is no phased restart where a puma.rb may have promised one" do
    server = Server.ready(ru: Rackups::PID, options: { ConfigFile: nil }, files: { "config/puma.rb" => "workers 1" }, fastrack: true)
    server.signal(:USR1)
    server.await_log("fastrack: USR1: log files are reopened; for Puma's phased restart send HUP\n")
  end

  it "has a line with seconds when the old master has ended after USR2" do
    server = ready
    server.signal(:USR2)
    server.await_log(/^fastrack: the old master has ended, \d+\.\d s after this one was ready$/)
    expect(own_lines(server)).to include("order of the new master: stopping, requests have up to 30 s (GracefulTimeout)",
                                         "stopped, N s after order of the new master")
  end
end
