# frozen_string_literal: true

require "open3"
require_relative "hanging_app"
require_relative "monitor_client"
require_relative "server"

# What the specs about the monitor share: a server with one, and clients that its workers are busy with.
module MonitorHelpers
  APP = %q(run ->(env) { [env["PATH_INFO"] == "/bad" ? 404 : 200, { "content-type" => "text/plain" }, [Process.pid.to_s]] })
  TOKEN = "0123456789abcdef"

  # @return [MonitorClient] of the server that `serve` has started last
  attr_reader :monitor

  # A server with a pid file and a monitor, whose workers are there.
  def serve(ru: APP, options: {}, **keywords)
    options = { MaxWorkers: 2, Pid: "app.pid" }.merge(options)
    Server.start(ru: ru, options: options, **keywords).tap do |server|
      @monitor = MonitorClient.new(server.file("app.control"))
      @pid_file = server.file("app.pid")
      server.await_workers(options[:MaxWorkers])
    end
  end

  # One that serves, as its monitor says.
  def serving(**keywords) = serve(**keywords).tap { ready }

  # One whose requests may take for ever.
  def hanging(**options) = serving(ru: HangingApp::RU, options: { RequestTimeout: 0, **options })
  def ready(workers = 2)
    monitor.await("not serving") { |status| status["phase"] == "serving" && status["workers_ready"] == workers }
  end

  # Clients that have sent this.
  def ask(server, target, count = 1)
    Array.new(count) { server.connect.tap { |socket| socket.write("GET #{target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n") } }
  end

  # Those whose requests are in the app.
  def hung(server, target, count) = ask(server, target, count).tap { await_requests(target, count) }

  def await_requests(target, count)
    monitor.await("no #{count} at #{target}") { |status| status["workers"].count { |one| one["request"] == "GET #{target}" } == count }
  end

  # Runs the command to its end.
  def fastrack(*arguments)
    output, status = Open3.capture2e(Server::CLEAN_ENVIRONMENT, RbConfig.ruby, "-w", Server::COMMAND, *arguments, chdir: Dir.tmpdir)
    [output, status.exitstatus]
  end
end
