# frozen_string_literal: true

require "support/http_helpers"

RSpec.describe "A11 the env of a request" do
  before(:context) { serve(HttpApps.ru(:echo)) }

  def get(target = "/", *fields)
    env_of("GET #{target} HTTP/1.1", "Host: example.org", *fields)
  end

  it "A11 has the request line" do
    env = get("/a/b?c=d&e=%20f")
    expect(env).to include(
      "REQUEST_METHOD" => "GET", "REQUEST_URI" => "/a/b?c=d&e=%20f", "PATH_INFO" => "/a/b",
      "QUERY_STRING" => "c=d&e=%20f", "SCRIPT_NAME" => "", "SERVER_PROTOCOL" => "HTTP/1.1"
    )
  end

  it "A11 has an empty QUERY_STRING where the target has none, or an empty one" do
    expect(get("/a")).to include("QUERY_STRING" => "", "REQUEST_URI" => "/a")
    expect(get("/a?")).to include("QUERY_STRING" => "", "REQUEST_URI" => "/a?")
  end

  it "A11 splits the target at the first question mark, and keeps everything after it" do
    expect(get("/a?b?c/d")).to include("PATH_INFO" => "/a", "QUERY_STRING" => "b?c/d")
  end

  it "A11 has any method, as it was sent" do
    %w[GET POST PUT PATCH DELETE OPTIONS TRACE REPORT PROPFIND M-SEARCH get].each do |verb|
      env = env_of("#{verb} /m HTTP/1.1", "Host: a", "Content-Length: 0")
      expect(env["REQUEST_METHOD"]).to eq(verb)
    end
  end

  it "A11 has the protocol of the request" do
    expect(env_of("GET / HTTP/1.0")).to include("SERVER_PROTOCOL" => "HTTP/1.0")
  end

  it "A11 has the listener's name and port as strings, whatever Host says" do
    env = get("/", "X-Forwarded-Host: other")
    expect(env).to include("SERVER_NAME" => "127.0.0.1", "SERVER_PORT" => server.port.to_s, "HTTP_HOST" => "example.org")
  end

  it "A11 has the client's address and port" do
    server.connect do |socket|
      socket.write(message("GET / HTTP/1.1", "Host: a", "Connection: close"))
      env = HttpApps::Echo.read(HttpResponse.parse(socket.read)).fetch("env")
      expect(env).to include("REMOTE_ADDR" => "127.0.0.1", "REMOTE_PORT" => socket.local_address.ip_port.to_s)
    end
  end

  it "A11 has HTTP_ variables of all fields, upper case, with underscores" do
    env = get("/", "User-Agent: spec", "x-some-thing: one", "ACCEPT: text/html", "X1-2: three", "If-None-Match: \"x\"")
    expect(env).to include(
      "HTTP_HOST" => "example.org", "HTTP_USER_AGENT" => "spec", "HTTP_X_SOME_THING" => "one",
      "HTTP_ACCEPT" => "text/html", "HTTP_X1_2" => "three", "HTTP_IF_NONE_MATCH" => "\"x\""
    )
  end

  it "A11 has field values without the white space around them, and empty ones" do
    env = get("/", "X-Wide: \t  a b \t ", "X-Narrow:c", "X-Empty:", "X-Blank:   ")
    expect(env).to include("HTTP_X_WIDE" => "a b", "HTTP_X_NARROW" => "c", "HTTP_X_EMPTY" => "", "HTTP_X_BLANK" => "")
  end

  it "A11 has values as bytes (binary strings), which need not be UTF-8" do
    env = get("/", "X-Latin: caf\xE9".b, "X-Utf: caf\u00E9".b)
    expect(env["HTTP_X_LATIN"]).to eq("caf\xE9".b)
    expect(env["HTTP_X_UTF"]).to eq("caf\u00E9".b)
    expect(env.values_at("HTTP_X_LATIN", "PATH_INFO", "HTTP_HOST").map(&:encoding)).to all(eq(Encoding::BINARY))
  end

  it "A11 has CONTENT_TYPE and CONTENT_LENGTH without HTTP_" do
    env = env_of("POST / HTTP/1.1", "Host: a", "content-type: text/plain; a=b", "Content-length: 3", body: "abc")
    expect(env).to include("CONTENT_TYPE" => "text/plain; a=b", "CONTENT_LENGTH" => "3")
    expect(env.keys.grep(/\AHTTP_CONTENT/)).to be_empty
  end

  it "A11 has no CONTENT_TYPE or CONTENT_LENGTH where the request has none" do
    expect(get.keys.grep(/CONTENT/)).to be_empty
  end

  it "A11 has the rack. variables" do
    expect(get).to include(
      "rack.multithread" => false, "rack.multiprocess" => true, "rack.run_once" => false,
      "rack.url_scheme" => "http", "rack.errors" => "IO"
    )
  end

  it "A11 has rack.version only where the Rack in use wants it" do
    env = get
    if HttpApps.rack3?
      expect(env).not_to have_key("rack.version")
    else
      expect(env["rack.version"]).to match([Integer, Integer])
    end
  end

  it "A11 has a rack.input that reads as empty where there is no body" do
    expect(echoed("GET / HTTP/1.1", "Host: a").fetch("body")).to eq("")
  end

  it "A11 joins fields of the same name with a comma, in their order" do
    expect(get("/", "Accept: a", "X-Two: 1", "Accept: b", "x-two: 2")).to include("HTTP_ACCEPT" => "a, b", "HTTP_X_TWO" => "1, 2")
  end

  it "B-cookie joins several Cookie lines with a semicolon" do
    expect(get("/", "Cookie: a=1", "Cookie: b=2; c=3", "cookie: d=4")["HTTP_COOKIE"]).to eq("a=1; b=2; c=3; d=4")
  end

  it "B-underscore never lets X_Foo override X-Foo, whichever comes first" do
    expect(get("/", "X-Foo: real", "X_Foo: forged")["HTTP_X_FOO"]).to eq("real")
    expect(get("/", "X_Foo: forged", "X-Foo: real")["HTTP_X_FOO"]).to eq("real")
    expect(get("/", "X_Forwarded_For: 6.6.6.6", "X-Forwarded-For: 1.1.1.1")["HTTP_X_FORWARDED_FOR"]).to eq("1.1.1.1")
  end

  it "B-underscore has no way around the framing: Content_Length is not CONTENT_LENGTH" do
    env = get("/", "Content_Length: 5", "Transfer_Encoding: chunked")
    expect(env).not_to have_key("CONTENT_LENGTH")
    expect(env).not_to have_key("HTTP_TRANSFER_ENCODING")
    env = env_of("POST / HTTP/1.1", "Host: a", "Content_Length: 7", "Content-Length: 2", body: "ab")
    expect(env["CONTENT_LENGTH"]).to eq("2")
  end

  it "B-whole-names compares names whole: neither a start nor an end of a known name will do" do
    env = get("/", "Hos: a", "Hostt: b", "Content-Lengthy: 4", "Content-Lengt: 5", "Cookies: c", "Cooki: d",
              "Transfer-Encodings: chunked", "X-Content-Length: 9", "Content-Typ: e", "Expects: f", "Connectio: g")
    expect(env).to include(
      "HTTP_HOST" => "example.org", "HTTP_HOS" => "a", "HTTP_HOSTT" => "b", "HTTP_CONTENT_LENGTHY" => "4",
      "HTTP_CONTENT_LENGT" => "5", "HTTP_COOKIES" => "c", "HTTP_COOKI" => "d", "HTTP_TRANSFER_ENCODINGS" => "chunked",
      "HTTP_X_CONTENT_LENGTH" => "9", "HTTP_CONTENT_TYP" => "e", "HTTP_EXPECTS" => "f", "HTTP_CONNECTIO" => "g"
    )
    expect(env.keys & %w[CONTENT_LENGTH CONTENT_TYPE HTTP_COOKIE]).to be_empty
  end

  it "B-path-encoded leaves PATH_INFO percent-encoded" do
    env = get("/caf%C3%A9/a%2Fb%20c%3Fd")
    expect(env).to include("PATH_INFO" => "/caf%C3%A9/a%2Fb%20c%3Fd", "REQUEST_URI" => "/caf%C3%A9/a%2Fb%20c%3Fd")
  end

  it "B-absolute-form gives a right PATH_INFO and Host" do
    env = get("http://other.example:8080/a/b?c=d")
    expect(env).to include(
      "PATH_INFO" => "/a/b", "QUERY_STRING" => "c=d", "HTTP_HOST" => "other.example:8080",
      "REQUEST_URI" => "http://other.example:8080/a/b?c=d"
    )
    expect(get("HTTPS://other.example")).to include("PATH_INFO" => "/", "QUERY_STRING" => "", "HTTP_HOST" => "other.example")
    expect(get("http://other.example?q")).to include("PATH_INFO" => "/", "QUERY_STRING" => "q")
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

  it "A11 holds a browser's head of many fields, none lost" do
    fields = (1..100).map { |index| ["X-Field-#{index}", "value #{index}"] }
    env = get("/", *fields.map { |pair| pair.join(": ") })
    expect(fields.map { |name, _| env["HTTP_#{name.upcase.tr("-", "_")}"] }).to eq(fields.map(&:last))
  end
end

RSpec.describe "B-path-decoded: the option PathInfo" do
  before(:context) { serve(HttpApps.ru(:echo), options: { "PathInfo" => "decoded" }) }

  it "B-path-decoded gives Rhebok's PATH_INFO, and leaves query and REQUEST_URI alone" do
    env = env_of("GET /caf%C3%A9/a%2Fb%20c%3fd+e?f=%20 HTTP/1.1", "Host: a")
    expect(env).to include(
      "PATH_INFO" => "/caf\u00E9/a/b c?d+e".b, "QUERY_STRING" => "f=%20", "REQUEST_URI" => "/caf%C3%A9/a%2Fb%20c%3fd+e?f=%20"
    )
  end

  it "B-path-decoded refuses a broken triplet with 400, and the app is not called" do
    %w[/broken% /broken%2 /broken%zz].each do |target|
      expect(talk("GET #{target} HTTP/1.1", "Host: a").status).to eq(400)
    end
    expect(journal.lines.grep(/broken/)).to be_empty
  end
end

RSpec.describe "B-ipv6: the env of a request over IPv6" do
  before(:context) { serve(HttpApps.ru(:echo), options: { "Host" => "::1" }) }

  it "B-ipv6 has an IPv6 REMOTE_ADDR" do
    server.connect do |socket|
      socket.write(message("GET / HTTP/1.1", "Host: [::1]", "Connection: close"))
      env = HttpApps::Echo.read(HttpResponse.parse(socket.read)).fetch("env")
      expect(env).to include("REMOTE_ADDR" => "::1", "REMOTE_PORT" => socket.local_address.ip_port.to_s)
    end
  end

  it "B-ipv6 tells the addresses of two clients apart" do
    ports = Array.new(3) { env_of("GET / HTTP/1.1", "Host: a")["REMOTE_PORT"] }
    expect(ports.uniq.size).to eq(3)
  end
end

RSpec.describe "A7 the env of a request over a unix socket" do
  before(:context) { serve(HttpApps.ru(:echo), unix: true) }

  it "A7 has the fixed names of a socket that has no host, port or peer" do
    env = env_of("GET / HTTP/1.1", "Host: example.org:81")
    expect(env).to include(
      "SERVER_NAME" => "0.0.0.0", "SERVER_PORT" => "0", "REMOTE_ADDR" => "", "REMOTE_PORT" => "0", "HTTP_HOST" => "example.org:81"
    )
  end

  it "A7 has everything else as over TCP" do
    env = env_of("POST /a?b HTTP/1.0", "Content-Length: 2", body: "ab")
    expect(env).to include("REQUEST_METHOD" => "POST", "PATH_INFO" => "/a", "QUERY_STRING" => "b", "CONTENT_LENGTH" => "2")
  end
end
