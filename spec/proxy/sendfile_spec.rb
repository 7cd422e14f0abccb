# frozen_string_literal: true

require "zlib"

RSpec.describe "the proxy: X-Sendfile", once: "the program knows no Ruby" do
  def server = @server

  app = <<~RUBY
    name = "x-sendfile"
    file = ->(path) { { name => File.expand_path("private/" + path) } }
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/cookies" then [200, file["report"].merge("set-cookie" => Rack.release >= "3" ? %w[a=1 b=2 c=3] : "a=1\\nb=2\\nc=3"), []]
      when "/missing" then [404, file["404.html"].merge("x-app" => "kept"), []]
      when "/zipped" then [200, file["data.gz"].merge("content-encoding" => "gzip", "content-type" => "text/plain"), []]
      when "/tagged" then [200, file["report"].merge("etag" => '"own"', "last-modified" => "Thu, 01 Jan 2015 00:00:00 GMT"), []]
      when "/weak" then [200, file["report"].merge("etag" => 'W/"own"'), []]
      when "/none" then [204, file["report"], []]
      else [200, file["report"].merge("x-app" => "kept", "cache-control" => "private", "content-length" => "0"), []]
      end
    end)
  RUBY

  before(:context) do
    files = { "private/report" => "0123456789", "private/404.html" => "<p>missing</p>", "private/data.gz" => Zlib.gzip("data") }
    @server = Edge.start(ru: app, config: "sendfile_root 'private'\n", files: files)
  end

  def get(path, *fields, verb: "GET")
    text, = Edge.curl(server, "--raw", "-i", "--http1.1", *(verb == "HEAD" ? ["-I"] : ["-X", verb]), *fields.flat_map { |field| ["-H", field] }, path: path)
    HttpResponse.parse(text, head_only: verb == "HEAD")
  end

  def seen(response, *names) = [response.status, response.body, *names.map { |name| response.headers[name] }]

  it "each Set-Cookie of the app arrives, with the whole file, a part of it, and 304" do
    tag = get("/cookies").headers["etag"]
    [[], ["Range: bytes=0-1"], ["If-None-Match: #{tag}"]].zip([200, 206, 304]) do |fields, status|
      text, = Edge.curl(server, "-i", "--http1.1", *fields.flat_map { |field| ["-H", field] }, path: "/cookies")
      expect([text[/ (\d{3})/, 1].to_i, text.scan(/^set-cookie: (.*?)\r/i).flatten]).to eq([status, %w[a=1 b=2 c=3]])
    end
  end

  it "the app's status stays, whatever the client asks for" do
    [[], ["Range: bytes=0-1"], ["If-None-Match: *"], ["If-Match: \"x\""]].each do |fields|
      expect([fields, *seen(get("/missing", *fields), "x-app", "content-type")]).to eq([fields, 404, "<p>missing</p>", "kept", "text/html; charset=utf-8"])
    end
    expect(seen(get("/none"))).to eq([204, ""])
  end

  it "the app's Content-Encoding stays" do
    sent = get("/zipped", "Accept-Encoding: gzip")
    expect([sent.status, sent.headers["content-encoding"], Zlib.gunzip(sent.body)]).to eq([200, "gzip", "data"])
  end

  it "conditions and ranges are judged by the app's own tag and date" do
    whole = "0123456789"
    { [] => [200, whole], ["Range: bytes=0-1", "If-Range: \"own\""] => [206, "01"], ["Range: bytes=0-1", "If-Range: \"other\""] => [200, whole],
      ["Range: bytes=0-1", "If-Range: Thu, 01 Jan 2015 00:00:00 GMT"] => [206, "01"], ["If-Match: \"own\""] => [200, whole], ["If-Match: \"other\""] => [412, ""],
      ["If-None-Match: W/\"own\""] => [304, ""], ["If-Modified-Since: Thu, 01 Jan 2015 00:00:00 GMT"] => [304, ""],
      ["If-Unmodified-Since: Thu, 01 Jan 2015 00:00:00 GMT"] => [200, whole] }.each do |fields, expected|
      expect([fields, *seen(get("/tagged", *fields), "etag")]).to eq([fields, *expected, "\"own\""])
    end
    # A weak tag is good for 304 only.
    expect(["Range: bytes=0-1\r\nIf-Range: W/\"own\"", "If-None-Match: W/\"own\"", "If-Match: W/\"own\""].map { |fields| get("/weak", *fields.split("\r\n")).status })
      .to eq([200, 304, 412])
  end

  it "POST gets the file whole, and no 304 or 206" do
    tag = get("/report").headers["etag"]
    [[], ["If-None-Match: #{tag}"], ["If-Match: \"x\""], ["Range: bytes=0-1"]].each do |fields|
      expect([fields, *seen(get("/report", *fields, verb: "POST"), "x-app", "content-length")]).to eq([fields, 200, "0123456789", "kept", "10"])
    end
  end

  it "HEAD has the fields of GET" do
    head, got = get("/report", verb: "HEAD"), get("/report")
    names = %w[etag last-modified content-length x-app cache-control accept-ranges]
    expect([head.status, *names.map { |name| head.headers[name] }]).to eq([200, *names.map { |name| got.headers[name] }])
    expect(head.headers["content-length"]).to eq("10")
  end
end
