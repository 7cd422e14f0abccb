# frozen_string_literal: true

require_relative "../support/http_apps/shaping"

# D17: Rails' Response::Buffer says that it has to_ary and answers with an Enumerator; Rack::Files' parts raise in it.
RSpec.describe "D17 a body that says more of itself than is so" do
  before(:context) do
    serve(HttpApps.ru(:shaping))
    server.write("named", "onetwo")
  end

  def done_to(path) = journal.lines.grep(/\A#{path} /).map { |line| line.split(" ", 2).last }

  HttpApps::Shaping::SHAPES.each_key do |name|
    next if name == "to-ary-exits"

    { "/#{name}" => "", "/response/#{name}" => " inside a Rack::Response", "/sized/#{name}" => " with a Content-Length", "/proxied/#{name}" => " inside a Rack::BodyProxy",
      "/sized/proxied/#{name}" => " inside a Rack::BodyProxy, with a Content-Length" }.each do |path, how|
      it "D17 is served and closed once: #{name}#{how}" do
        bytes, ending = HttpPeer.exchange(server, message("GET #{path} HTTP/1.1", "Host: a", "Connection: close"))
        response = HttpResponse.parse(bytes)
        expect([response.status, response.body, ending]).to eq([200, "onetwo", :closed])
        expect(response.headers["Content-Length"]).to eq("6") if path.start_with?("/sized") || name == "to-path-pathname"
        closes = path.include?("proxied") ? %w[close proxy] : %w[close]
        eventually(10, -> { done_to(path) }) { done_to(path) == closes }
        server.get("/")
        expect(done_to(path)).to eq(closes)
      end
    end
  end

  it "D17 is kept on its connection like any other" do
    peer = KeptPeer.new(server)
    bodies = %w[to-ary-nil to-ary-enumerator to-ary-raises to-path-nil plain].map { |name| peer.get("/#{name}").body }
    expect(bodies).to all(eq("onetwo"))
    expect_worker_alive
  end

  it "B-app-error answers 500 where to_ary raises what is no StandardError (Rack 3)", if: HttpApps.rack3? do
    expect(server.get("/to-ary-exits").status).to eq(500)
    expect(server.log).to include("NotImplementedError")
    expect_worker_alive
  end
end
