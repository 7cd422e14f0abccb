# frozen_string_literal: true

RSpec.describe "C5 an app inside Rack::Lint" do
  # Over TCP without chunks, and over a unix socket in chunks.
  [false, true].each do |unix|
    context(unix ? "over a unix socket, in chunks" : "over TCP") do
      before(:context) do
        ru = %(require "rack"\nrequire "rack/lint"\nrequire #{File.expand_path("../support/http_apps", __dir__).inspect}\n)
        ru << HttpApps.ru(:clean, middleware: ["Rack::Lint"])
        serve(ru, unix: unix, options: { "ChunkedTransfer" => unix, "EarlyHints" => true })
      end

      def expect_clean(response, status = 200)
        expect(response.status).to eq(status), "#{response.body}\n#{server.log}"
      end

      it "C5 takes every method" do
        %w[GET POST PUT PATCH DELETE OPTIONS TRACE HEAD PROPFIND].each do |verb|
          expect_clean(talk("#{verb} / HTTP/1.1", "Host: a", "Content-Length: 0"))
        end
      end

      it "C5 takes every kind of target" do
        ["/", "/a/b%20c", "/?", "/a?b=c&d", "//double", "/%C3%A9", "http://other:80/a?b", "/a?b?c"].each do |target|
          expect_clean(talk("GET #{target} HTTP/1.1", "Host: a"))
        end
        expect_clean(talk("OPTIONS * HTTP/1.1", "Host: a"))
      end

      it "C5 takes every kind of Host, and none" do
        %w[a a:81 localhost 127.0.0.1 127.0.0.1:9292 [::1] [::1]:9292 xn--bcher-kva.example].each do |host|
          expect_clean(talk("GET / HTTP/1.1", "Host: #{host}"))
        end
        expect_clean(talk("GET / HTTP/1.0"))
      end

      it "C5 takes fields of every kind" do
        fields = ["Cookie: a=1", "Cookie: b=2", "X-Empty:", "X-Two: 1", "X-Two: 2", "X_Under: 1", "X-Latin: \xE9".b]
        fields += ["Authorization: Basic YTpi", "Content-Type: text/plain; charset=utf-8", "If-Modified-Since: never"]
        expect_clean(talk("GET / HTTP/1.1", "Host: a", *fields))
      end

      it "C5 takes every kind of body" do
        [0, 1, 5, 70_000, 1_048_576, 1_500_000].each do |size|
          response = talk("POST /input HTTP/1.1", "Host: a", "Content-Length: #{size}", body: "a line\n".ljust(size, "x")[0, size])
          expect_clean(response)
          expect(response.body).to eq("#{size} 0")
        end
        response = talk("POST /input HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", body: "3\r\na\nb\r\n2\r\ncd\r\n0\r\n\r\n")
        expect_clean(response)
        expect(response.body).to eq("5 0")
        expect_clean(talk("POST /input HTTP/1.1", "Host: a", "Expect: 100-continue", "Content-Length: 3", body: "abc"))
      end

      it "C5 takes every kind of response" do
        { "/length" => 200, "/each" => 200, "/empty" => 200, "/no-content" => 204, "/not-modified" => 304, "/cookies" => 200 }
          .each do |path, status|
            expect_clean(talk("GET #{path} HTTP/1.1", "Host: a"), status)
            expect_clean(talk("GET #{path} HTTP/1.0"), status)
            expect_clean(talk("HEAD #{path} HTTP/1.1", "Host: a"), status)
          end
        expect(server.get("/cookies").headers.all("set-cookie")).to eq(%w[a=1 b=2])
      end

      it "C5 takes files, hijacks of both kinds, early hints, callbacks and rack.errors" do
        # Rack 2's Lint has an each around every body, and nothing else.
        file = File.read(File.expand_path("../support/http_apps/clean.rb", __dir__))
        expect(server.get("/file").body).to eq(HttpApps.rack3? ? file : "onetwo")
        expect_clean(server.get("/errors"))
        eventually { server.log.match?(/^put\nwritten$/) }
        expect([server.get("/hijack").body, server.get("/partial").body]).to eq(["hijacked", "streamed"])
        expect(HttpResponse.all(server.raw(message("GET /hints HTTP/1.1", "Host: a", "Connection: close"))).map(&:status)).to eq([103, 200])
        next unless HttpApps.rack3?

        expect(server.get("/streaming").body).to eq("streamed")
        eventually { server.log.include?("finished") }
      end

      it("C5 has had nothing to complain about") { expect(server.log).not_to match(/Lint/) }
    end
  end
end
