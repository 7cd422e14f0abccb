# frozen_string_literal: true

require_relative "../support/app_rails"
require_relative "../support/streams_app"

# ActionController::Live: the controller's thread is Rails' own, and the server's thread waits for what it writes.
RSpec.describe "A stream of ActionController::Live", skip: AppRails.missing do
  include StreamsApp
  include_context "with a Rails app"

  controller = <<~'RUBY'
    class LiveController < ActionController::Base
      include ActionController::Live

      def index
        response.headers["Content-Type"] = "text/event-stream"
        response.headers["Last-Modified"] = Time.now.httpdate
        response.stream.write("data: first\n\n")
        sleep 0.01 until File.exist?(Rails.root.join("tmp/more"))
        100.times { response.stream.write("data: more\n\n") && sleep(0.02) }
      rescue => e
        File.write(Rails.root.join("tmp/ended"), "#{e.class}\n", mode: "a")
      ensure
        response.stream.close
      end
    end
  RUBY

  before(:context) do
    File.write(@app.path("app/controllers/live_controller.rb"), controller)
    routes = @app.path("config/routes.rb")
    File.write(routes, File.read(routes).sub(/^end\s*\z/, "  get \"live\", to: \"live#index\"\nend\n"))
  end

  before do
    FileUtils.rm_f([@app.path("tmp/more"), @app.path("tmp/ended")])
    @server = @app.serve(options: { MaxWorkers: 1, MaxThreads: 2, Pid: @app.path("tmp/app.pid") }, env: { "RAILS_MAX_THREADS" => "2" })
    @monitor = MonitorClient.new(@app.path("tmp/app.control"))
    @server.await_workers(1)
  end

  it "holds no thread of MaxThreads" do
    peers = Array.new(6) { |number| stream("/live", streaming: number + 1) }
    expect(Array.new(4) { Thread.new { server.get("/connection").status } }.map(&:value)).to eq([200] * 4)
    File.write(@app.path("tmp/more"), "")
    peers.each { |peer| peer.read_until(/data: more.*\r\n0\r\n\r\n\z/m) }
    await_streams(0)
  end

  it "ends within a second when its client has left, and the next write raises Live's ClientDisconnected" do
    peers = Array.new(3) { |number| stream("/live", streaming: number + 1) }
    peers.each(&:close)
    # Before anything more is written to them.
    await_streams(0)
    File.write(@app.path("tmp/more"), "")
    ended = eventually { File.readlines(@app.path("tmp/ended"), chomp: true).then { |lines| lines if lines.size == 3 } rescue nil } # rubocop:disable Style/RescueModifier
    expect(ended).to eq(["ActionController::Live::ClientDisconnected"] * 3)
    expect(server.get("/connection").status).to eq(200)
  end
end
