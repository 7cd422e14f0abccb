# frozen_string_literal: true

require "support/http_apps"
require "support/http_apps/pacing"

# One request to HttpApps::Proxied of each kind that takes a way of its own through the server, to be run under special conditions.
module HttpRepresentative
  FIELDS = ["User-Agent: Mozilla/5.0 (X11; Linux x86_64)", "Accept: text/html,*/*;q=0.8", "Cookie: a=1", "Cookie: b=2", "X-Twice: 1", "X-Twice: 2", "X-Real: yes",
            "X_Real: no", "X-Never-Heard-Of: #{"v" * 300}", "DNT: 1"].freeze

  # Paths and bodies.
  BODIES = {
    "/body/array" => "onetwothree", "/body/each" => "onetwothree", "/body/each-mixed" => "ContentAgain0", "/body/mixed-array" => "ContentAgain0",
    "/body/some" => (0...200).map { |index| "#{index}," }.join, "/body/large" => ("x" * 3_000_000) + ("y" * 3_000_000),
    "/hijacking/full/twice" => "[true, true]", "/hijacking/partial/plain" => "partial TCPSocket",
    **(HttpApps.rack3? ? { "/streaming/parts" => "part 0,part 1,part 2,", "/streaming/to-ary" => "by to_ary" } : {})
  }.freeze

  # Paths, and the values of a header.
  HEADERS = { "/headers/lines" => ["X-Foo", %w[Foo Bar]], "/headers/arrays" => ["x-list", %w[a b]], "/headers/types" => ["X-Integer", %w[12]], "/pairs" => ["x-list", %w[two]] }.freeze

  # Sends them all, each on a connection of its own, and expects of each what it always gives.
  def expect_representative_requests
    expect_requests
    BODIES.each { |path, body| expect([path, server.get(path).body == body]).to eq([path, true]) }
    HEADERS.each { |path, (name, values)| expect(server.get(path).headers.all(name)).to eq(values) }
    expect(server.get("/filing/config.ru").body).to eq(File.read(server.file("config.ru")))
    expect(talk("HEAD /body/each HTTP/1.1", "Host: a").status).to eq(200)
    { "/status/204" => 204, "/headers/crlf" => 500, "/calling/both" => 201 }.each { |path, status| expect(server.get(path).status).to eq(status) }
    expect_ends
  end

  private

  def expect_requests
    env = env_of("GET /echo/a%20b?c=d HTTP/1.1", "Host: example.org", *FIELDS)
    expect(env).to include("REQUEST_METHOD" => "GET", "PATH_INFO" => "/echo/a%20b", "QUERY_STRING" => "c=d", "HTTP_COOKIE" => "a=1; b=2", "HTTP_X_TWICE" => "1, 2",
                           "HTTP_X_REAL" => "yes", "HTTP_X_NEVER_HEARD_OF" => "v" * 300, "SERVER_PROTOCOL" => "HTTP/1.1", "rack.input" => a_kind_of(String))
    [5, 100_000, 1_200_000].each do |size|
      body = Random.new(size).bytes(size)
      expect(echoed("POST /echo HTTP/1.1", "Host: a", "Content-Length: #{size}", body: body)["body"]).to eq(body)
    end
    seen = echoed("POST /echo HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", body: "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n")
    expect([seen["body"], seen["env"]["CONTENT_LENGTH"]]).to eq(%w[abcdefg 7])
  end

  # What ends in another way than by a whole response.
  def expect_ends
    expect(HttpPeer.exchange(server, message("GET /half-length HTTP/1.1", "Host: a")).last).to eq(:reset)
    expect(talk("GET / HTTP/1.1").status).to eq(400)
    HttpPeer.open(server) { |peer| peer.write(message("GET /parts HTTP/1.1", "Host: a")).read_until(/pppp/) && peer.abort }
      # A client that ends its sending while it waits is taken for gone.
      expect(server.get("/").body).to eq("hello")
    bytes, = HttpPeer.exchange(server, message("GET /hijacking/full/echo HTTP/1.1", "Host: a", body: "said at once"), half_close: true)
    expect(bytes).to end_with("SAID AT ONCE")
    server.get("/calling/none")
    expect(journal.lines.grep(/\A\/both /).last).to include(HttpApps.rack3? ? "/both finished 1: /both 201" : "/both reply 2")
    expect(HttpResponse.all(server.raw(message("GET /hinting/lines HTTP/1.1", "Host: a", "Connection: close"))).map(&:status)).to eq([103, 200])
  end
end
