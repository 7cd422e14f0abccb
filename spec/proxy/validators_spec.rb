# frozen_string_literal: true

RSpec.describe "the proxy: tags of compressed pages", once: "the program knows no Ruby" do
  def server = @server

  page = (1..500).map { |number| "<li>item #{number * number}</li>\n" }.join

  # Rack's own middleware answers by the tag exactly as it is.
  app = <<~RUBY
    require "rack/conditional_get"
    page = #{page.dump}
    use Rack::ConditionalGet
    run(lambda do |env|
      fields = { "content-type" => "text/html", "cache-control" => "private", "x-app" => env["REQUEST_METHOD"] }
      case env["PATH_INFO"]
      when "/strong" then [200, fields.merge("etag" => '"a,b"'), [page]]
      when "/weak" then [200, fields.merge("etag" => 'W/"a"'), [page]]
      when "/picture" then [200, fields.merge("etag" => '"a"', "content-type" => "image/png"), [page]]
      when "/error" then [404, fields.merge("etag" => '"a"'), [page]]
      else [200, fields, [page]]
      end
    end)
  RUBY

  before(:context) { @server = Edge.start(ru: app, config: "compress true\n") }

  def get(path, *fields, verb: "GET")
    text, = Edge.curl(server, "--raw", "-i", "--http1.1", *(verb == "HEAD" ? ["-I"] : ["-X", verb]), *fields.flat_map { |field| ["-H", field] }, path: path)
    HttpResponse.parse(text, head_only: verb == "HEAD")
  end

  def seen(...) = get(...).then { |found| [found.status, found.headers["etag"], found.headers["vary"]] }

  gzip = "Accept-Encoding: gzip"

  { "/strong" => 'W/"a,b"', "/weak" => 'W/"a"' }.each do |path, tag|
    it "a client that has #{path[1..]} compressed gets 304, as if the app had sent that tag" do
      expect(seen(path, gzip)).to eq([200, tag, "accept-encoding"])
      expect(seen(path, gzip, "If-None-Match: #{tag}")).to eq([304, tag, "accept-encoding"])
      expect(seen(path, gzip, "If-None-Match: #{tag}", verb: "HEAD")).to eq([304, tag, "accept-encoding"])
      found = get(path, gzip, "If-None-Match: #{tag}").headers
      expect(found.values_at("x-app", "cache-control", "content-length", "content-encoding")).to eq(["GET", "private", nil, nil])
    end
  end

  it "a list of tags counts, too, and another tag does not" do
    expect(seen("/strong", gzip, 'If-None-Match: "x", W/"a,b"').first).to eq(304)
    expect(seen("/strong", gzip, 'If-None-Match: W/"a"').first).to eq(200)
  end

  it "pages that are not compressed, errors and POST are the app's alone to judge" do
    found = { ["/picture"] => "GET", ["/error"] => "GET", ["/strong"] => "POST" }.map { |(path), verb| seen(path, gzip, 'If-None-Match: W/"a", W/"a,b"', verb: verb).first }
    expect(found).to eq([200, 404, 200])
    expect(seen("/picture", gzip, 'If-None-Match: "a"')).to eq([304, '"a"', "accept-encoding"])
  end

  it "the app's connection is used on after a 304 in place of a page" do
    tls = Edge.connect(server)
    heads = Array.new(20) { Edge.ask(tls, "/strong", gzip, 'If-None-Match: W/"a,b"').first[/ (\d+)/, 1] }
    expect([heads.uniq, Edge.ask(tls, "/plain").last]).to eq([["304"], page])
  end
end
