# frozen_string_literal: true

require "zlib"

RSpec.describe "the proxy: public files", once: "the program knows no Ruby" do
  def server = @server

  script = (1..2000).map { |number| "let variable#{number} = #{number * number};\n" }.join
  ru = "run ->(env) { [200, { 'content-type' => 'text/plain' }, ['app ' + env['PATH_INFO']]] }\n"

  before(:context) do
    files = { "public/app.js" => script, "public/short.js" => "short", "public/noise.txt" => Random.bytes(20_000), "public/kept/app.js" => script,
              "public/.well-known/security.txt" => "contact", "public/font.woff2" => "font", "public/feed.xml" => "<feed/>", "public/plain.js" => script,
              "shared/a.txt" => "shared", "elsewhere/b.txt" => "elsewhere" }
    config = <<~RUBY
      public_files "public"
      public_links "shared"
      public_file_headers "Access-Control-Allow-Origin" => "*", "Cache-Control" => "public, max-age=60", "Vary" => "Origin"
      cache_control "/kept/*", "no-transform"
    RUBY
    @server = Edge.start(ru: ru, config: config, files: files)
    File.symlink("../shared", server.file("public/linked"))
    File.symlink("../elsewhere", server.file("public/refused"))
  end

  def get(path, *fields, verb: "GET")
    text, = Edge.curl(server, "--raw", "-i", "--http1.1", *(verb == "HEAD" ? ["-I"] : ["-X", verb]), *fields.flat_map { |field| ["-H", field] }, path: path)
    HttpResponse.parse(text, head_only: verb == "HEAD")
  end

  def encoding(path, accept = "gzip") = get(path, "Accept-Encoding: #{accept}").headers["content-encoding"]

  it "a file without a form beside it is compressed as the client likes it best, and is the same file" do
    { "gzip" => "gzip", "br, gzip;q=0.5" => "br", "gzip, deflate, br, zstd" => "zstd" }.each do |accept, coding|
      found = get("/app.js", "Accept-Encoding: #{accept}")
      expect([found.headers["content-encoding"], found.headers["vary"], found.body.bytesize]).to match([coding, "Origin, accept-encoding", be < script.bytesize / 3])
      text, = Edge.curl(server, "--compressed", "-H", "Accept-Encoding: #{coding}", path: "/app.js")
      expect(text).to eq(script)
    end
    expect(get("/app.js").then { |plain| [plain.body, plain.headers["vary"]] }).to eq([script, "Origin, accept-encoding"])
  end

  it "a compressed file is made once: its bytes and its tag stay, and HEAD has its length" do
    first, second = Array.new(2) { get("/app.js", "Accept-Encoding: gzip") }
    head = get("/app.js", "Accept-Encoding: gzip", verb: "HEAD")
    names = %w[etag content-length content-encoding last-modified]
    expect(second.body).to eq(first.body)
    expect([first, second, head].map { |one| one.headers.values_at(*names) }.uniq).to eq([[first.headers["etag"], first.body.bytesize.to_s, "gzip", first.headers["last-modified"]]])
    expect(get("/app.js").headers["etag"]).not_to eq(first.headers["etag"])
  end

  it "a client that has the compressed file gets 304, also of a proxy that has not made it yet" do
    tag = get("/app.js", "Accept-Encoding: gzip").headers["etag"]
    unmade = get("/plain.js").headers["etag"].sub(/"\z/, "gz\"")
    { "/app.js" => tag, "/plain.js" => unmade }.each do |path, etag|
      found = get(path, "Accept-Encoding: gzip", "If-None-Match: #{etag}")
      expect([found.status, found.headers["etag"], found.headers["vary"], found.headers["cache-control"]]).to eq([304, etag, "Origin, accept-encoding", "public, max-age=60"])
    end
  end

  it "ranges are those of the file itself" do
    part = get("/app.js", "Accept-Encoding: gzip", "Range: bytes=0-2")
    expect([part.status, part.body, part.headers["content-encoding"]]).to eq([206, "let", nil])
  end

  it "files stay as they are that are short, that compression does not shrink, or that are not to be transformed" do
    expect(%w[/short.js /noise.txt /kept/app.js /font.woff2].map { |path| encoding(path) }).to eq([nil] * 4)
    expect(get("/noise.txt", "Accept-Encoding: gzip").body.bytesize).to eq(20_000)
  end

  it "each file has the fields that the user has set, unless a pattern says more" do
    found = %w[/font.woff2 /kept/app.js].map { |path| get(path).headers.values_at("access-control-allow-origin", "cache-control") }
    expect(found).to eq([["*", "public, max-age=60"], ["*", "no-transform"]])
    expect(get("/font.woff2", "If-None-Match: *").headers["access-control-allow-origin"]).to eq("*")
    expect(get("/missing").headers["access-control-allow-origin"]).to be_nil
  end

  it "text names its charset, except XML" do
    types = %w[/app.js /noise.txt /feed.xml /font.woff2].map { |path| get(path).headers["content-type"] }
    expect(types).to eq(["text/javascript; charset=utf-8", "text/plain; charset=utf-8", "text/xml", "font/woff2"])
  end

  it "/.well-known/ is for all" do
    expect(get("/.well-known/security.txt").body).to eq("contact")
  end

  it "a link leads to the folders that the user names; of any other the log and `fastrack check` tell" do
    expect([get("/linked/a.txt").body, get("/refused/b.txt").body]).to eq(["shared", "app /refused/b.txt"])
    line = %r{public/refused leads out of public_files, to #{File.realpath(server.file("elsewhere"))}: its files are left to the app}
    Eventually.eventually(Server::DEADLINE) { server.log.match?(line) }
    3.times { get("/refused/#{_1}") }
    output, status = Open3.capture2e(*Server::FASTRACK, "check", "-c", "fastrack.rb", chdir: server.dir)
    expect([status.exitstatus, output, output.include?("public/linked")]).to match([0, line, false])
    expect(server.log.scan(line).size).to eq(1)
  end
end
