# frozen_string_literal: true

# Texts of config.ru that more than one spec file serves.
module Rackups
  # Answers with the worker's pid.
  PID = "run ->(env) { [200, { 'content-type' => 'text/plain' }, [Process.pid.to_s]] }\n"

  # Answers with the env, one "key=value" a line.
  ENV_LINES = <<~'RUBY'
    run lambda { |env|
      lines = env.map { |key, value| "#{key}=#{value.inspect}" }
      [200, { "content-type" => "text/plain" }, [lines.join("\n")]]
    }
  RUBY

  # GET /slow tells the file `started` and answers when there is a file `go` in the server's folder; everything else is
  # answered with the worker's pid at once.
  GATE = <<~'RUBY'
    here = File.dirname(File.expand_path(__FILE__))
    run lambda { |env|
      if env["PATH_INFO"] == "/slow"
        File.write(File.join(here, "started"), Process.pid.to_s)
        sleep 0.01 until File.exist?(File.join(here, "go"))
      end
      [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
    }
  RUBY
end

# What goes with GATE: a request that is in the app for as long as the example wants.
class SlowRequest
  # Returns when the app has been called.
  def initialize(server)
    @server = server
    @thread = Thread.new { server.get("/slow") }
    @thread.report_on_exception = false
    Clients.keep(self)
    Eventually.eventually(20, "no request in the app") { pid }
  end

  # The worker that is at it.
  def pid
    text = File.read(File.join(@server.dir, "started"))
    text.empty? ? nil : text.to_i
  rescue Errno::ENOENT
    nil
  end

  # Lets the app go on, and gives the response.
  def finish
    @server.write("go", "")
    @thread.value
  end

  # Where no response is to be had.
  def close = @thread.kill
end
