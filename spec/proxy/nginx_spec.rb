# frozen_string_literal: true

require "support/http_apps/pacing"

RSpec.describe "behind nginx", once: "what nginx sees" do
  {
    "over a TCP upstream" => {},
    "over a unix socket, by HTTP/1.1 and in chunks" => { unix: true, chunked: true, settings: "proxy_http_version 1.1;" },
    "over a TCP upstream, unbuffered" => { settings: "proxy_buffering off; proxy_request_buffering off; proxy_http_version 1.1;" }
  }.each do |what, setup|
    context what do
      before(:context) do
        serve(HttpApps.ru(:proxied), unix: setup[:unix], options: { "MaxWorkers" => 2, "ChunkedTransfer" => setup[:chunked] })
        upstream = setup[:unix] ? "unix:#{server.path}" : "127.0.0.1:#{server.port}"
        @nginx = HttpNginx.new(upstream, settings: setup.fetch(:settings, ""))
      end

      after(:context) { @nginx&.stop }

      # A response as nginx's client sees it.
      def through(verb, path, *fields, body: "")
        bytes, ending = HttpPeer.exchange(@nginx, message("#{verb} #{path} HTTP/1.1", "Host: example.org", "Connection: close", *fields, body: body))
        expect(ending).to eq(:closed)
        HttpResponse.parse(bytes, head_only: verb == "HEAD")
      end

      it "nginx: a request comes through, with what nginx has to say about it" do
        env = HttpApps::Echo.read(through("GET", "/echo/a%20b?c=d", "Cookie: a=1", "X-Own: yes")).fetch("env")
        expect(env).to include("PATH_INFO" => "/echo/a%20b", "QUERY_STRING" => "c=d", "HTTP_HOST" => "example.org", "HTTP_COOKIE" => "a=1",
                               "HTTP_X_OWN" => "yes", "HTTP_X_FORWARDED_FOR" => "10.1.2.3", "HTTP_X_FORWARDED_PROTO" => "https")
        expect(env["REMOTE_ADDR"]).to eq(setup[:unix] ? "" : "127.0.0.1")
      end

      it "nginx: bodies of any size come through, with a length and in chunks" do
        [0, 1, 10_000, 3_000_000].each do |size|
          body = Random.new(size).bytes(size)
          expect(HttpApps::Echo.read(through("POST", "/echo", "Content-Length: #{size}", body: body))["body"]).to eq(body)
        end
        chunks = "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
        expect(HttpApps::Echo.read(through("POST", "/echo", "Transfer-Encoding: chunked", body: chunks))["body"]).to eq("hello world")
      end

      it "nginx: every kind of response comes through" do
        expect([through("GET", "/").body, through("GET", "/body/array").body]).to eq(["hello", "onetwothree"])
        expect([through("GET", "/body/each").body, through("GET", "/body/empty").body]).to eq(["onetwothree", ""])
        expect(through("GET", "/body/each-large").body).to eq("z" * 5_000_000)
        expect(through("GET", "/large").body.bytesize).to eq(HttpApps::Pacing::LARGE)
        expect(through("HEAD", "/body/array").headers["Content-Length"]).to eq("11").or be_nil
        [204, 304, 404, 503].each { |code| expect(through("GET", "/status/#{code}").status).to eq(code) }
        expect(through("GET", "/headers/lines").headers.all("X-Foo")).to eq(%w[Foo Bar])
        expect(through("GET", "/headers/crlf").status).to eq(500)
      end

      it "nginx: half a response never passes for a whole one, as far as its framing can tell" do
        bytes, = HttpPeer.exchange(@nginx, message("GET /half-length HTTP/1.1", "Host: a", "Connection: close"))
        expect { HttpResponse.parse(bytes) }.to raise_error(HttpResponse::Malformed)
        expect(@nginx.log).to match(/prematurely closed|reset by peer/)
      end
    end
  end
end
