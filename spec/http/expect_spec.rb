# frozen_string_literal: true

RSpec.describe "A13 Expect", once: "bytes on the wire" do
  before(:context) { serve(HttpApps.ru(:echo)) }

  go_on = "HTTP/1.1 100 Continue\r\n\r\n"

  def head(*fields, protocol: "HTTP/1.1") = message("POST / #{protocol}", "Host: a", "Connection: close", *fields)

  # What a client sends that sends its body only once it has been told to, and what the app reads.
  { "A13 before a body" => [["Expect: 100-continue", "Content-Length: 3"], "abc", "abc"],
    "A13 before chunks" => [["Expect: 100-continue", "Transfer-Encoding: chunked"], "3\r\nabc\r\n0\r\n\r\n", "abc"],
    "A13 before a body that goes to a file" => [["Expect: 100-continue", "Content-Length: 2000000"], *["x" * 2_000_000] * 2],
    "B-expect-case whatever the case" => [["EXPECT: 100-Continue", "Content-Length: 1"], "x", "x"] }.each do |what, (fields, sent, read)|
    it what.sub(" ", " sends 100 Continue ") do
      HttpPeer.open(server) do |peer|
        peer.write(head(*fields)).read_until(/\r\n\r\n/)
        interim, final = HttpResponse.all(peer.write(sent).read_to_end)
        expect(interim.raw).to eq(go_on)
        expect(HttpApps::Echo.read(final)).to include("body" => read, "env" => include("HTTP_EXPECT" => fields.first.split.last))
      end
    end
  end

  # Fields, what is sent with them at once, and the statuses that come back.
  {
    "it once at most, and the response once" => [["Content-Length: 3"], "abc", "HTTP/1.1", [[100, 200], [200]]],
    "nothing where there is no body to wait for" => [[], "", "HTTP/1.1", [[200]]],
    "nothing where the body is empty" => [["Content-Length: 0"], "", "HTTP/1.1", [[200]]],
    "nothing to HTTP/1.0, which does not know it" => [["Content-Length: 3"], "abc", "HTTP/1.0", [[200]]]
  }.each do |what, (fields, body, protocol, statuses)|
    it "A13 sends #{what}" do
      bytes = server.raw(head("Expect: 100-continue", *fields, protocol: protocol) << body)
      expect(statuses).to include(HttpResponse.all(bytes).map(&:status))
    end
  end

  describe "A13 an app's own 100" do
    # Answers with 100 what expects one, and /N always with that status.
    app = <<~'RUBY'
      closes = 0
      body = ["no body"].tap { |one| one.define_singleton_method(:close) { closes += 1 } }
      run lambda { |env|
        status = env["PATH_INFO"][1..].to_i
        next [status, { "content-type" => "text/plain" }, body] if status.positive?
        next [100, { "content-type" => "text/plain" }, body] if env["HTTP_EXPECT"]
        [200, { "content-type" => "text/plain" }, ["#{closes} #{env.key?("HTTP_EXPECT")} #{env["rack.input"].read}"]]
      }
    RUBY

    { "in a streamed body, and that once" => [true, "HTTP/1.1", [100, 200]], "after the server's own" => [false, "HTTP/1.1", [100, 100, 200]],
      "but not to HTTP/1.0" => [true, "HTTP/1.0", [200]] }.each do |what, (streams, protocol, statuses)|
      it "A13 is sent, and the app is called again without HTTP_EXPECT, #{what}" do
        serve(app, options: { "StreamBody" => streams })
        HttpPeer.open(server) do |peer|
          peer.write(head("Expect: 100-continue", "Content-Length: 3", protocol: protocol))
          peer.read_until(/\r\n\r\n/) if protocol == "HTTP/1.1"
          responses = HttpResponse.all(peer.write("abc").read_to_end)
          expect([responses.map(&:status), responses.last.body]).to eq([statuses, "1 false abc"])
        end
      end
    end

    it "A13 is a 500 if the app has no other response, as is 102, 103 or any other that is not final" do
      serve(app)
      [100, 102, 103, 199].each { |status| expect(server.get("/#{status}").status).to eq(500), status.to_s }
      server.await_log(/failed: .*is no final one \(RangeError\)/)
      expect(server.get("/204").status).to eq(204)
    end
  end
end
