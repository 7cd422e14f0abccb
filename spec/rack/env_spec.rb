# frozen_string_literal: true

RSpec.describe "A11 the env of a request" do
  before(:context) { serve(HttpApps.ru(:echo)) }

  def get(target = "/", *fields) = env_of("GET #{target} HTTP/1.1", "Host: example.org", *fields)

  # What GET requests are to the app: target, fields, and what is in the env; nil where nothing is.
  {
    "A11 the request line" => ["/a/b?c=d&e=%20f", [], { "REQUEST_METHOD" => "GET", "REQUEST_URI" => "/a/b?c=d&e=%20f", "PATH_INFO" => "/a/b", "QUERY_STRING" => "c=d&e=%20f",
                                                       "SCRIPT_NAME" => "", "SERVER_PROTOCOL" => "HTTP/1.1" }],
    "A11 an empty QUERY_STRING where the target has none" => ["/a", [], { "QUERY_STRING" => "", "REQUEST_URI" => "/a" }],
    "A11 an empty QUERY_STRING where it is empty" => ["/a?", [], { "QUERY_STRING" => "", "REQUEST_URI" => "/a?" }],
    "A11 all after the first question mark" => ["/a?b?c/d", [], { "PATH_INFO" => "/a", "QUERY_STRING" => "b?c/d" }],
    "A11 HTTP_ variables of all fields, upper case, with underscores" =>
      ["/", ["User-Agent: spec", "x-some-thing: one", "X1-2: three", "If-None-Match: \"x\""],
       { "HTTP_HOST" => "example.org", "HTTP_USER_AGENT" => "spec", "HTTP_X_SOME_THING" => "one", "HTTP_X1_2" => "three", "HTTP_IF_NONE_MATCH" => "\"x\"" }],
    "A11 values without the white space around them, and empty ones" =>
      ["/", ["X-Wide: \t  a b \t ", "X-Narrow:c", "X-Empty:", "X-Blank:   "], { "HTTP_X_WIDE" => "a b", "HTTP_X_NARROW" => "c", "HTTP_X_EMPTY" => "", "HTTP_X_BLANK" => "" }],
    "A11 values as bytes, which need not be UTF-8" => ["/", ["X-Latin: caf\xE9".b, "X-Utf: caf\u00E9".b], { "HTTP_X_LATIN" => "caf\xE9".b, "HTTP_X_UTF" => "caf\u00E9".b }],
    "A11 no CONTENT_TYPE or CONTENT_LENGTH where the request has none" => ["/", [], { "CONTENT_TYPE" => nil, "CONTENT_LENGTH" => nil }],
    "A11 the rack. variables" => ["/", [], { "rack.multithread" => false, "rack.multiprocess" => true, "rack.run_once" => false, "rack.url_scheme" => "http", "rack.errors" => "IO",
                                             "rack.version" => HttpApps.rack3? ? nil : Array }],
    "A11 fields of the same name joined by a comma, in their order" => ["/", ["Accept: a", "X-Two: 1", "Accept: b", "x-two: 2"], { "HTTP_ACCEPT" => "a, b", "HTTP_X_TWO" => "1, 2" }],
    "B-cookie several Cookie lines joined by a semicolon" => ["/", ["Cookie: a=1", "Cookie: b=2; c=3", "cookie: d=4"], { "HTTP_COOKIE" => "a=1; b=2; c=3; d=4" }],
    "B-underscore X-Foo and not X_Foo after it" => ["/", ["X-Foo: real", "X_Foo: forged"], { "HTTP_X_FOO" => "real" }],
    "B-underscore X-Foo and not X_Foo before it" => ["/", ["X_Foo: forged", "X-Foo: real"], { "HTTP_X_FOO" => "real" }],
    "B-underscore no framing by Content_Length" => ["/", ["Content_Length: 5", "Transfer_Encoding: chunked"], { "CONTENT_LENGTH" => nil, "HTTP_TRANSFER_ENCODING" => nil }],
    "B-whole-names whole names: neither a start nor an end of a known one" =>
      ["/", ["Hos: a", "Hostt: b", "Content-Lengthy: 4", "Content-Lengt: 5", "Cookies: c", "Cooki: d", "Transfer-Encodings: chunked", "X-Content-Length: 9", "Content-Typ: e", "Connectio: g"],
       { "HTTP_HOST" => "example.org", "HTTP_HOS" => "a", "HTTP_HOSTT" => "b", "HTTP_CONTENT_LENGTHY" => "4", "HTTP_CONTENT_LENGT" => "5", "HTTP_COOKIES" => "c", "HTTP_COOKI" => "d",
         "HTTP_TRANSFER_ENCODINGS" => "chunked", "HTTP_X_CONTENT_LENGTH" => "9", "HTTP_CONTENT_TYP" => "e", "HTTP_CONNECTIO" => "g", "CONTENT_LENGTH" => nil, "HTTP_COOKIE" => nil }],
    "B-path-encoded PATH_INFO percent-encoded" => ["/caf%C3%A9/a%2Fb%20c%3Fd", [], { "PATH_INFO" => "/caf%C3%A9/a%2Fb%20c%3Fd", "REQUEST_URI" => "/caf%C3%A9/a%2Fb%20c%3Fd" }],
    "B-absolute-form path and host of an absolute target" =>
      ["http://other.example:8080/a/b?c=d", [], { "PATH_INFO" => "/a/b", "QUERY_STRING" => "c=d", "HTTP_HOST" => "other.example:8080", "REQUEST_URI" => "http://other.example:8080/a/b?c=d" }],
    "B-absolute-form path and host of one without a path" => ["HTTPS://other.example", [], { "PATH_INFO" => "/", "QUERY_STRING" => "", "HTTP_HOST" => "other.example" }],
    "B-absolute-form a path for one with a query only" => ["http://other.example?q", [], { "PATH_INFO" => "/", "QUERY_STRING" => "q" }],
    "A11 a head of many fields, none lost" => ["/", (1..100).map { |nr| "X-Field-#{nr}: value #{nr}" }, (1..100).to_h { |nr| ["HTTP_X_FIELD_#{nr}", "value #{nr}"] }]
  }.each do |what, (target, fields, expected)|
    it "has #{what}" do
      env = get(target, *fields)
      expect(env).to include(expected.compact)
      expect(env.keys & expected.select { |_, value| value.nil? }.keys).to be_empty
    end
  end

  it "A11 has any method, as it was sent, and the protocol" do
    %w[GET POST PUT PATCH DELETE OPTIONS TRACE REPORT M-SEARCH get].each do |verb|
      expect(env_of("#{verb} /m HTTP/1.1", "Host: a", "Content-Length: 0")["REQUEST_METHOD"]).to eq(verb)
    end
    expect(env_of("GET / HTTP/1.0")).to include("SERVER_PROTOCOL" => "HTTP/1.0")
  end

  it "A11 has name and port as strings, those of Host, whatever a proxy's fields say" do
    forwarded = ["X-Forwarded-Host: other", "X-Forwarded-Port: 81", "X-Forwarded-Proto: https"]
    expect(get("/", *forwarded)).to include("SERVER_NAME" => "example.org", "SERVER_PORT" => "80", "HTTP_HOST" => "example.org", "rack.url_scheme" => "http")
  end

  it "A11 has the client's address and port" do
    server.connect do |socket|
      socket.write(message("GET / HTTP/1.1", "Host: a", "Connection: close"))
      env = HttpApps::Echo.read(HttpResponse.parse(socket.read)).fetch("env")
      expect(env).to include("REMOTE_ADDR" => "127.0.0.1", "REMOTE_PORT" => socket.local_address.ip_port.to_s)
    end
  end

  it "A11 has binary strings" do
    expect(get("/", "X: a").values_at("HTTP_X", "PATH_INFO", "HTTP_HOST").map(&:encoding)).to all(eq(Encoding::BINARY))
  end

  it "A11 has CONTENT_TYPE and CONTENT_LENGTH without HTTP_, whatever Content_Length says, and an empty input without a body" do
    env = env_of("POST / HTTP/1.1", "Host: a", "content-type: text/plain; a=b", "Content_Length: 7", "Content-length: 3", body: "abc")
    expect(env).to include("CONTENT_TYPE" => "text/plain; a=b", "CONTENT_LENGTH" => "3")
    expect([env.keys.grep(/\AHTTP_CONTENT/), echoed("GET / HTTP/1.1", "Host: a").fetch("body")]).to eq([[], ""])
  end

  it "A11 takes the asterisk-form for OPTIONS, for which the SPEC has a PATH_INFO since Rack 3.1" do
    path = HttpApps.rack31? ? "*" : ""
    expect(env_of("OPTIONS * HTTP/1.1", "Host: a")).to include("PATH_INFO" => path, "REQUEST_URI" => "*")
  end

  it "A11 gives each request an env of its own" do
    first = get("/", "X-Only-Here: 1", "Cookie: a=1")
    second = get
    expect(first).to include("HTTP_X_ONLY_HERE" => "1")
    expect(second.keys & %w[HTTP_X_ONLY_HERE HTTP_COOKIE]).to be_empty
  end
end

RSpec.describe "B-path-decoded: the option PathInfo" do
  before(:context) { serve(HttpApps.ru(:echo), options: { "PathInfo" => "decoded" }) }

  it "B-path-decoded gives Rhebok's PATH_INFO, and leaves query and REQUEST_URI alone" do
    env = env_of("GET /caf%C3%A9/a%2Fb%20c%3fd+e?f=%20 HTTP/1.1", "Host: a")
    expect(env).to include("PATH_INFO" => "/caf\u00E9/a/b c?d+e".b, "QUERY_STRING" => "f=%20",
                           "REQUEST_URI" => "/caf%C3%A9/a%2Fb%20c%3fd+e?f=%20")
  end

  it "B-path-decoded refuses a broken triplet with 400, and the app is not called" do
    %w[/broken% /broken%2 /broken%zz].each { |target| expect(talk("GET #{target} HTTP/1.1", "Host: a").status).to eq(400) }
    expect(journal.lines.grep(/broken/)).to be_empty
  end
end
