# frozen_string_literal: true

require_relative "http_apps"
require_relative "http_apps/echo"
require_relative "http_journal"
require_relative "http_peer"

# What specs about HTTP and Rack share: they have one server for a whole group, in @server.
module HttpHelpers
  # One server for all examples of a group, with one worker that stays: whoever dies in an example is noticed.
  def serve(ru, options: {}, **keywords)
    options = { "MaxWorkers" => 1, "MaxRequestPerChild" => 0 }.merge(options)
    @server = Server.start(ru: ru, options: options, **keywords)
    @worker = @server.await_workers(1).first if options["MaxWorkers"] == 1
    @server
  end

  def server = @server
  def journal = HttpJournal.new(@server.dir)

  # Sends a head, given without line ends, and a body; the response, which is the last on its connection.
  def talk(*lines, body: "", to: @server)
    lines += ["Connection: close"] unless lines.any? { |line| line.match?(/\Aconnection:/i) }
    HttpResponse.parse(to.raw(message(*lines, body: body)), head_only: lines.first.start_with?("HEAD "))
  end

  # Leaves when that much of the response has come.
  def abandon(path, part)
    HttpPeer.open(server) do |peer|
      peer.write(message("GET #{path} HTTP/1.1", "Host: a"))
      peer.read_until(part)
      peer.abort
    end
  end

  def message(*lines, body: "") = "#{lines.join("\r\n")}\r\n\r\n".b << body.b
  def echoed(*lines, body: "", to: @server) = HttpApps::Echo.read(talk(*lines, body: body, to: to))
  def env_of(*lines, body: "", to: @server) = echoed(*lines, body: body, to: to).fetch("env")

  # The worker is the one that was started with the group, and it answers.
  def expect_worker_alive(to: @server)
    expect(to.workers).to eq([@worker])
    expect(to.get("/").status).to be_between(200, 499)
  end
end
