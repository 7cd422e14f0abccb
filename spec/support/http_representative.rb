# frozen_string_literal: true

require "support/http_apps"
require "support/http_apps/pacing"

# One request of each kind that takes a way of its own through the server, to be run again under special conditions.
# The app is HttpApps::Proxied.
module HttpRepresentative
  FIELDS = [
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64)", "Accept: text/html,*/*;q=0.8", "Accept-Encoding: gzip, deflate, br",
    "Accept-Language: en-US,en;q=0.5", "Cookie: a=1", "Cookie: b=2", "X-Twice: 1", "X-Twice: 2", "X-Real: yes", "X_Real: no",
    "X-Never-Heard-Of: #{"v" * 300}", "DNT: 1", "Referer: http://a/b"
  ].freeze

  # Sends them all, each on a connection of its own, and expects of each what it always gives.
  def expect_representative_requests
    expect_env
    expect_inputs
    expect_responses
    expect_failures
    expect_taking_part
    expect_streaming if HttpApps.rack3?
  end

  private

  def expect_env
    env = env_of("GET /echo/a%20b?c=d HTTP/1.1", "Host: example.org", *FIELDS)
    expect(env).to include(
      "REQUEST_METHOD" => "GET", "PATH_INFO" => "/echo/a%20b", "QUERY_STRING" => "c=d", "HTTP_COOKIE" => "a=1; b=2",
      "HTTP_X_TWICE" => "1, 2", "HTTP_X_REAL" => "yes", "HTTP_X_NEVER_HEARD_OF" => "v" * 300, "HTTP_HOST" => "example.org",
      "SERVER_PROTOCOL" => "HTTP/1.1", "rack.input" => a_kind_of(String)
    )
  end

  def expect_inputs
    [5, 100_000, 1_200_000].each do |size|
      body = Random.new(size).bytes(size)
      expect(echoed("POST /echo HTTP/1.1", "Host: a", "Content-Length: #{size}", body: body)["body"]).to eq(body)
    end
    seen = echoed("POST /echo HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", body: "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n")
    expect(seen["body"]).to eq("abcdefg")
    expect(seen["env"]).to include("CONTENT_LENGTH" => "7")
  end

  def expect_responses
    expect(server.get("/headers/lines").headers.all("X-Foo")).to eq(%w[Foo Bar])
    expect(server.get("/headers/arrays").headers.all("x-list")).to eq(%w[a b])
    expect(server.get("/headers/types").headers["X-Integer"]).to eq("12")
    expect(server.get("/pairs").headers["x-list"]).to eq("two")
    { "array" => "onetwothree", "each" => "onetwothree", "each-mixed" => "ContentAgain0", "mixed-array" => "ContentAgain0" }
      .each { |name, body| expect(server.get("/body/#{name}").body).to eq(body) }
    expect(server.get("/body/some").body).to eq((0...200).map { |index| "#{index}," }.join)
    expect(server.get("/body/large").body.bytesize).to eq(6_000_000)
    expect(talk("HEAD /body/each HTTP/1.1", "Host: a").status).to eq(200)
    expect(server.get("/status/204").status).to eq(204)
  end

  def expect_failures
    expect(server.get("/headers/crlf").status).to eq(500)
    expect(HttpPeer.exchange(server, message("GET /half-length HTTP/1.1", "Host: a")).last).to eq(:reset)
    expect(talk("GET / HTTP/1.1").status).to eq(400)
    HttpPeer.open(server) do |peer|
      peer.write(message("GET /parts HTTP/1.1", "Host: a"))
      peer.read_until(/pppp/)
      peer.abort
    end
    expect(server.get("/").body).to eq("hello")
  end

  def expect_taking_part
    expect(server.get("/hijacking/full/twice").body).to eq("[true, true]")
    bytes, = HttpPeer.exchange(server, message("GET /hijacking/full/echo HTTP/1.1", "Host: a", body: "said at once"), half_close: true)
    expect(bytes).to end_with("SAID AT ONCE")
    expect(server.get("/hijacking/partial/plain").body).to eq("partial TCPSocket")
    expect(server.get("/filing/config.ru").body).to eq(File.read(File.join(server.dir, "config.ru")))
    expect(server.get("/calling/both").status).to eq(201)
    server.get("/calling/none")
    expect(journal.lines.grep(/\A\/both /).last).to include(HttpApps.rack3? ? "/both finished 1: /both 201" : "/both reply 2")
    expect(HttpResponse.all(server.raw(message("GET /hinting/lines HTTP/1.1", "Host: a", "Connection: close"))).map(&:status)).to eq([103, 200])
  end

  def expect_streaming
    expect(server.get("/streaming/parts").body).to eq("part 0,part 1,part 2,")
    expect(server.get("/streaming/to-ary").body).to eq("by to_ary")
  end
end
