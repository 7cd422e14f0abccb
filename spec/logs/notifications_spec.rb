# frozen_string_literal: true

# What subscribers of ActiveSupport::Notifications learn of each request.
RSpec.describe "Fastrack::Notifications" do
  begin
    require "active_support"
    require "active_support/notifications"
  rescue LoadError
    before { skip "ActiveSupport is not installed" }
  end

  # Writes what it is told of to a file.
  def app(subscriber)
    <<~RUBY
      require "json"
      require "active_support"
      require "active_support/notifications"
      # rackup loads this file first.
      require "fastrack"
      FILE = File.join(File.dirname(File.expand_path(__FILE__)), "events")
      WRITE = ->(event) { File.write(FILE, JSON.generate(event) + "\\n", mode: "a") }
      #{subscriber}
      use Fastrack::Notifications
      freeze_app
      run lambda { |env|
        raise "no" if env["PATH_INFO"] == "/raise"
        sleep 0.05
        env["PATH_INFO"] = "/" if env["PATH_INFO"] == "/mounted"
        [env["PATH_INFO"] == "/missing" ? 404 : 200, { "content-type" => "text/plain" }, ["hello"]]
      }
    RUBY
  end

  let(:with_times) { <<~'RUBY' }
    ActiveSupport::Notifications.subscribe("request.fastrack") do |name, started, finished, id, payload|
      WRITE.call(payload.merge(name: name, lasted: finished - started, id: id))
    end
  RUBY

  def events(server, count)
    Eventually.eventually { server.lines_of("events").then { |lines| lines.map { |line| JSON.parse(line, symbolize_names: true) } if lines.size >= count } }
  end

  it "tells of each request its status, how long it took and waited, and which worker answered it" do
    server = Server.start(ru: app(with_times), options: { MaxWorkers: 1 })
    server.get("/a?b=c", { "X-Request-ID" => "r-1", "X-Request-Start" => "t=#{Time.now.to_f - 2}" })
    server.get("/missing")
    expect(server.get("/raise").status).to eq(500)
    server.get("/mounted")
    one, *others = events(server, 4)
    expect(one).to include(name: "request.fastrack", method: "GET", path: "/a", status: 200, worker: 0, request_id: "r-1",
                           duration: be >= 0.05, queue_time: be >= 2, id: be_a(String))
    expect(one[:lasted]).to be_within(0.001).of(one[:duration])
    expect(others.map { |event| event.values_at(:path, :status) }).to eq([["/missing", 404], ["/raise", 500], ["/mounted", 200]])
  end

  it "does so when the response has left: no client waits for a subscriber" do
    slow = with_times.sub("WRITE", "sleep 0.01 until File.exist?(\"\#{FILE}.go\")\n  WRITE")
    server = Server.start(ru: app(slow), options: { MaxWorkers: 1 })
    expect([server.get("/a").body, server.lines_of("events")]).to eq(["hello", []])
    server.write("events.go", "")
    events(server, 1)
  end

  it "tells those, too, that want an event as one object" do
    skip "takes ActiveSupport 7.1" unless ActiveSupport::Notifications.respond_to?(:publish_event)

    server = Server.start(ru: app(<<~'RUBY'), options: { MaxWorkers: 1 })
      ActiveSupport::Notifications.subscribe("request.fastrack") { |event| WRITE.call(event.payload.merge(lasted: event.duration)) }
    RUBY
    server.get("/a")
    event = events(server, 1).first
    # In milliseconds.
    expect(event).to include(status: 200, lasted: be_within(1).of(event[:duration] * 1000))
  end

  it "costs nothing, and puts no callback after the response, where nobody has subscribed" do
    server = Server.start(ru: app("").sub("sleep 0.05", 'File.write("#{FILE}.callbacks", env["rack.after_reply"].size.to_s)'), options: { MaxWorkers: 1 })
    server.get("/a")
    expect(server.lines_of("events.callbacks")).to eq(["0"])
  end
end
