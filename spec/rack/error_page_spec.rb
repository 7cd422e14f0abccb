# frozen_string_literal: true

RSpec.describe "B-app-error the page for an app that fails" do
  # Not by rackup, which would put error pages of Rack's around the app.
  def development = { rackup: false, env: { "RACK_ENV" => "development" } }

  # The page for a path of the raising app, with this ConfigFile.
  def page(path = "/standard", verb: "GET")
    response = talk("#{verb} #{path} HTTP/1.1", "Host: a", "Connection: close")
    [response.status, response.headers["Content-Type"], response.body]
  end

  context "in development" do
    before(:context) { serve(HttpApps.ru(:raising), **development) }

    it "B-app-error shows exception and backtrace, as text that no browser takes for a page" do
      status, type, body = page
      expect([status, type]).to eq([500, "text/plain; charset=utf-8"])
      expect(body).to match(/trouble on purpose \(.*ArgumentError.*\)/).and match(/raising\.rb:\d+:in/)
      expect(server.get("/standard").headers["x-content-type-options"]).to eq("nosniff")
      expect_worker_alive
    end

    it "B-app-error shows them for what is no StandardError, and for what is no response, too" do
      expect(page("/not-implemented").last).to include("NotImplementedError")
      expect(page("/nil").last).to include("TypeError")
      expect([page("/binary").first, page("/mute").first]).to eq([500, 500])
      expect_worker_alive
    end
  end

  {
    "|error|" => ["{ |error| [503, { 'content-type' => 'text/own' }, [error.message]] }", "trouble on purpose"],
    "|error, env|" => ["{ |error, env| [503, { 'content-type' => 'text/own' }, [error.class.name, env['PATH_INFO']]] }", "ArgumentError/standard"],
    "|error, env, status|" => ["{ |_error, _env, status| [503, { 'content-type' => 'text/own' }, [status]] }", "500"],
    "an object" => ["(Class.new { def call(error, env) = [503, { 'content-type' => 'text/own' }, [env['REQUEST_METHOD']]] }.new)", "GET"]
  }.each do |signature, (handler, body)|
    it "B-app-error is made by lowlevel_error_handler with #{signature}, also in development" do
      serve(HttpApps.ru(:raising), config: "lowlevel_error_handler#{handler}", **development)
      expect(page).to eq([503, "text/own", body])
      eventually { server.log.include?("trouble on purpose (ArgumentError)") }
      expect_worker_alive
    end
  end

  it "B-app-error is made by a handler for a bad response, whose body is closed before" do
    serve(HttpApps.ru(:closing), config: "lowlevel_error_handler { |error| [500, {}, [error.class.name]] }")
    expect([page("/bad-header").last, page("/bad-status").last]).to eq(["ArgumentError", "RangeError"])
    expect(page("/fails-at-once").last).to eq("RuntimeError")
    expect(journal.lines).to eq(["bad-header close", "bad-status close", "fails-at-once each", "fails-at-once close"])
    expect(HttpPeer.exchange(server, message("GET /fails-later HTTP/1.1", "Host: a")).last).to eq(:reset)
  end

  it "B-app-error is the server's own when the handler fails, or gives no response" do
    ["raise 'in the handler'", "nil", "[200, {}, 5]"].each do |code|
      serve(HttpApps.ru(:raising), config: "lowlevel_error_handler { |error| #{code} }")
      status, type, body = page
      expect([status, type]).to eq([500, "text/plain"])
      expect(body).not_to include("trouble")
      expect_worker_alive
    end
  end

  it "B-app-error says nothing of the app outside of development" do
    serve(HttpApps.ru(:raising), **development, env: { "RACK_ENV" => "production" })
    expect(page).to eq([500, "text/plain", "500 Internal Server Error: the application failed\n"])
  end
end
