# frozen_string_literal: true

require "zlib"

RSpec.describe "the proxy: files and compression", once: "the program knows no Ruby" do
  def server = @server

  page = (1..500).map { |number| "<li>item #{number * number}</li>\n" }.join

  app = <<~RUBY
    page = #{page.dump}
    fields = { "content-type" => "text/html", "etag" => "\\"strong\\"" }
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/page" then [200, fields, [page]]
      when "/short" then [200, fields, ["short"]]
      when "/picture" then [200, { "content-type" => "image/png" }, [page]]
      when "/kept" then [200, fields.merge("cache-control" => "no-transform"), [page]]
      when "/send" then [200, { "content-type" => "text/x-own", "x-sendfile" => File.expand_path("private/" + env["QUERY_STRING"]) }, []]
      else [200, { "content-type" => "text/plain" }, ["app " + env["REQUEST_METHOD"] + " " + env["PATH_INFO"] + " " + env["HTTP_X_SENDFILE_TYPE"].to_s]]
      end
    end)
  RUBY

  before(:context) do
    files = { "public/a.txt" => "0123456789", "public/assets/b.css" => "plain", "public/assets/b.css.gz" => Zlib.gzip("zipped"), "public/.env" => "secret",
              "public/index.html" => "index", "public/about.html" => "about", "public/docs/index.html" => "docs", "secret" => "secret",
              "private/report" => "report" * 100, "private/50%25%20off" => "literal" }
    config = "public_files 'public'\nsendfile_root 'private'\ncache_control '/assets/*', 'public, max-age=31536000, immutable'\n"
    @server = Edge.start(ru: app, config: config, files: files)
    File.symlink("../secret", server.file("public/link"))
  end

  def get(path, *fields, verb: "GET")
    options = fields.flat_map { |field| ["-H", field] }
    text, = Edge.curl(server, "--path-as-is", "--raw", "-i", "--http1.1", *(verb == "HEAD" ? ["-I"] : ["-X", verb]), *options, path: path)
    HttpResponse.parse(text, head_only: verb == "HEAD")
  end

  it "files are answered without the app, and all else is the app's" do
    { "/a.txt" => "0123456789", "/" => "index", "/about" => "about", "/about.html" => "about", "/docs" => "docs", "/docs/" => "docs",
      "/a.txt?b=c" => "0123456789" }.each { |path, text| expect([path, get(path).body]).to eq([path, text]) }
    ["/missing", "/.env", "/%2eenv", "/link", "/assets/../../secret", "/assets/..%2f..%2fsecret", "/%2e%2e/secret", "/assets"].each do |path|
      expect(get(path).body).to start_with("app GET /")
    end
    expect(get("/a.txt", verb: "POST").body).to start_with("app POST /a.txt")
  end

  it "a file has its type, tag, date and Cache-Control, and HEAD has no body" do
    css = get("/assets/b.css")
    expect(css.headers.to_h.transform_keys(&:downcase)).to include("content-type" => "text/css; charset=utf-8", "cache-control" => "public, max-age=31536000, immutable", "etag" => /\A"/,
                                                                   "last-modified" => / GMT\z/, "accept-ranges" => "bytes", "content-length" => "5")
    expect(get("/a.txt").headers["cache-control"]).to be_nil
    head = get("/a.txt", verb: "HEAD")
    expect([head.status, head.headers["content-length"], head.body]).to eq([200, "10", ""])
  end

  it "HEAD by HTTP/2 has no body either, of files and of this process's errors", once: "what nghttp sees" do
    skip "no nghttp" unless ENV.fetch("PATH").split(":").any? { |dir| File.executable?(File.join(dir, "nghttp")) }
    { "/a.txt" => ["200", "10"], "/send?../secret" => %w[404 10] }.each do |path, (status, length)|
      said = Open3.capture2e("nghttp", "-nv", "--timeout=20", "-H", ":method: HEAD", "https://127.0.0.1:#{server.port}#{path}").first.gsub(/\e\[[\d;]*m/, "")
      expect(said).to include(":status: #{status}", "content-length: #{length}")
      expect(said).not_to match(/RST_STREAM|PROTOCOL_ERROR|recv DATA/)
    end
  end

  it "a compressed form beside the file goes to whom takes it" do
    zipped = get("/assets/b.css", "Accept-Encoding: gzip")
    expect([zipped.headers["content-encoding"], Zlib.gunzip(zipped.body), zipped.headers["vary"]]).to eq(["gzip", "zipped", "accept-encoding"])
    expect(get("/assets/b.css", "Accept-Encoding: gzip;q=0").body).to eq("plain")
  end

  it "who has the file gets 304" do
    tag, date = get("/a.txt").headers.then { |fields| [fields["etag"], fields["last-modified"]] }
    expect([get("/a.txt", "If-None-Match: #{tag}"), get("/a.txt", "If-Modified-Since: #{date}"), get("/a.txt", "If-None-Match: \"x\"")].map(&:status))
      .to eq([304, 304, 200])
  end

  it "ranges are as nginx has them", once: "what nginx answers" do
    path = server.file("nginx.sock")
    nginx = HttpNginx.new(nil, path: path, servers: "types { text/plain txt; } server { listen unix:#{path}; root #{server.file("public")}; }")
    of_nginx = lambda do |range|
      bytes, = HttpPeer.exchange(nginx, message("GET /a.txt HTTP/1.1", "Host: a", "Connection: close", "Range: #{range}"))
      HttpResponse.parse(bytes)
    end
    ["bytes=0-0", "bytes=2-4", "bytes=-3", "bytes=5-", "bytes=0-100", "bytes=10-", "lines=1-2", "bytes=0-0,-1", "bytes=0-,0-"].each do |range|
      ours, theirs = get("/a.txt", "Range: #{range}"), of_nginx.call(range)
      boundary = ->(response) { response.body.gsub(/^--\w+/, "--boundary").gsub(/^content-type: .*\r\n/i, "").downcase }
      expect([range, ours.status, ours.headers["content-range"], boundary.call(ours)])
        .to eq([range, theirs.status, theirs.headers["content-range"], theirs.status == 416 ? "" : boundary.call(theirs)])
    end
  ensure
    nginx&.stop
  end

  it "X-Sendfile sends a file of its folder, with the app's fields, and no other" do
    sent = get("/send?report")
    expect([sent.status, sent.body, sent.headers["content-type"], sent.headers["x-sendfile"]]).to eq([200, "report" * 100, "text/x-own", nil])
    expect(get("/send?report", "Range: bytes=0-2").then { |part| [part.status, part.body] }).to eq([206, "rep"])
    expect(get("/send?../secret").status).to eq(404)
    # Rack::Sendfile writes the path as it is; what other libraries encode is found, too.
    expect(["50%25%20off", "r%65port"].map { |name| get("/send?#{name}").body }).to eq(%w[literal] + ["report" * 100])
    expect(get("/else").body).to end_with(" X-Sendfile")
    expect(get("/else", "X-Sendfile-Type: X-Accel-Redirect").body).to end_with(" X-Sendfile")
  end

  it "the app's pages are compressed by what the client takes" do
    plain = get("/page")
    expect([plain.body, plain.headers["vary"], plain.headers["etag"], plain.headers["content-encoding"]]).to eq([page, "accept-encoding", "\"strong\"", nil])
    { "gzip, br;q=0.5" => "gzip", "br" => "br", "gzip, deflate, br, zstd" => "zstd" }.each do |accept, coding|
      found = get("/page", "Accept-Encoding: #{accept}")
      expect([found.headers["content-encoding"], found.headers["etag"], found.headers["vary"]]).to eq([coding, "W/\"strong\"", "accept-encoding"])
      expect(found.body.bytesize).to be < page.bytesize / 3
      text, = Edge.curl(server, "--compressed", "-H", "Accept-Encoding: #{coding}", path: "/page")
      expect(text).to eq(page)
    end
  end

  it "what must not be compressed is not" do
    %w[/short /picture /kept].each { |path| expect(get(path, "Accept-Encoding: gzip").headers["content-encoding"]).to be_nil, path }
    expect(get("/page", "Accept-Encoding: identity").headers["content-encoding"]).to be_nil
  end

  it "the same page has other lengths: none tells a secret" do
    lengths = Array.new(12) { get("/page", "Accept-Encoding: gzip").body.bytesize }
    expect(lengths.uniq.size).to be > 3
  end
end
