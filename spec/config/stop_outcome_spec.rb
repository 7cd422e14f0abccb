# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/command_folder"
require_relative "../support/monitor_client"

RSpec.describe "What comes of a stop", linux: "it is seen in /proc", once: "processes and a socket" do
  include CommandFolder

  SIDECAR = %w[unshare --pid --fork --mount-proc].freeze

  def running(*arguments) = ready("-b", "127.0.0.1:0", "-w", "2", *arguments)

  # How `fastrack stop` has ended, and whether a process of the server was left then.
  def stopped(server, *arguments) = [*fastrack("stop", *arguments), server.processes.size]

  it "is told by `fastrack stop` when the last request has ended and all processes are gone" do
    write("config.ru", Rackups::GATE)
    server = running
    slow = Thread.new { server.get("/slow") }
    eventually { lines("started").any? }
    result = Thread.new { stopped(server) }
    server.await_log("TERM: stopping")
    expect(result).to be_alive
    write("go", "")
    expect(result.value).to match([/\ATERM sent to #{server.pid}\nstopped in \d+\.\d s\n\z/, 0, 0])
    expect(slow.value.status).to eq(200)
  end

  it "is told of a server that its pid file or its socket names, from another container, too" do
    expect(stopped(running("-P", "app.pid"), "-P", "app.pid")).to match([/^stopped in /, 0, 0])
    server = running("--control", "app.socket")
    skip "a container takes root's rights" unless system(*SIDECAR, "true", err: File::NULL)

    eventually { File.socket?(path("app.socket")) }
    output, = Open3.capture2e(Server::CLEAN_ENVIRONMENT, *SIDECAR, RbConfig.ruby, Server::COMMAND, "stop", "--control", path("app.socket"), chdir: @dir)
    expect([output, server.workers]).to match([/^stopped in /, []])
  end

  it "is status 1 and what still runs, when that outlasts the server's own limits" do
    write("config.ru", "at_exit { sleep if $PROGRAM_NAME.end_with?('fastrack') }\n#{Rackups::PID}")
    server = running("-O", "GracefulTimeout=0")
    expect(stopped(server, "-O", "GracefulTimeout=0"))
      .to match([/^fastrack: TERM has failed: it still runs \(.*, pid #{server.pid}\) after 5 s .*From its log:$.*TERM/m, 1, 1])
    server.signal(:KILL)
  end

  it "is not waited for with --no-wait" do
    server = running("-P", "app.pid")
    server.signal(:STOP)
    expect(fastrack("stop", "-P", "app.pid", "--no-wait", "-O", "ControlPath=none")).to eq(["TERM sent to #{server.pid}; see the server's log for the result\n", 0])
  ensure
    server.signal(:CONT)
  end
end
