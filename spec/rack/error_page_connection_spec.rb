# frozen_string_literal: true

RSpec.describe "B-app-error the connection of a client that got an error page", once: "the server's pages" do
  # Whether a request behind one for which the app raises is answered, and what Connection said.
  def after_error(verb = "GET")
    requests = message("#{verb} /standard HTTP/1.1", "Host: a") + message("GET / HTTP/1.1", "Host: a", "Connection: close")
    first, rest = HttpResponse.take(HttpPeer.exchange(server, requests).first, head_only: verb == "HEAD")
    expect(first.status).to eq(500)
    [first.headers["connection"], !rest.empty?]
  end

  it "B-app-error goes on after a page of the app's own" do
    serve(HttpApps.ru(:raising), config: "lowlevel_error_handler { |error| [500, {}, [error.message]] }", rackup: false)
    expect(%w[GET HEAD].map { |verb| after_error(verb) }).to all(eq([nil, true]))
    expect_worker_alive
  end

  it "B-app-error goes on after the page for developers" do
    serve(HttpApps.ru(:raising), rackup: false, env: { "RACK_ENV" => "development" })
    expect(after_error).to eq([nil, true])
  end

  it "B-app-error ends after the server's own page, which says so" do
    serve(HttpApps.ru(:raising), rackup: false)
    expect(%w[GET HEAD].map { |verb| after_error(verb) }).to all(eq(["close", false]))
    expect_worker_alive
  end
end
