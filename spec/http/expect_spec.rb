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
end
