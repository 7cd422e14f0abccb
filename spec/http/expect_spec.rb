# frozen_string_literal: true

RSpec.describe "A13 Expect", once: "bytes on the wire" do
  before(:context) { serve(HttpApps.ru(:echo)) }

  go_on = "HTTP/1.1 100 Continue\r\n\r\n"

  def head(*fields, protocol: "HTTP/1.1") = message("POST / #{protocol}", "Host: a", "Connection: close", *fields)

  # A client that sends its body only once it has been told to.
  def patient(*fields, body:)
    HttpPeer.open(server) do |peer|
      peer.write(head(*fields))
      peer.read_until(/\r\n\r\n/)
      peer.write(body)
      yield peer.read_to_end
    end
  end

  it "A13 sends 100 Continue before the body is read" do
    patient("Expect: 100-continue", "Content-Length: 3", body: "abc") do |bytes|
      interim, final = HttpResponse.all(bytes)
      expect(interim.raw).to eq(go_on)
      expect(HttpApps::Echo.read(final)).to include("body" => "abc", "env" => a_hash_including("HTTP_EXPECT" => "100-continue"))
    end
  end

  it "A13 does so for a chunked body, and for one that goes to a file" do
    patient("Expect: 100-continue", "Transfer-Encoding: chunked", body: "3\r\nabc\r\n0\r\n\r\n") do |bytes|
      expect([bytes, HttpApps::Echo.read(HttpResponse.parse(bytes))["body"]]).to match([start_with(go_on), "abc"])
    end
    large = "x" * 2_000_000
    patient("Expect: 100-continue", "Content-Length: #{large.bytesize}", body: large) do |bytes|
      expect([bytes, HttpApps::Echo.read(HttpResponse.parse(bytes))["body"]]).to match([start_with(go_on), large])
    end
  end

  it "B-expect-case matches the name and the value without case" do
    patient("EXPECT: 100-Continue", "Content-Length: 1", body: "x") do |bytes|
      expect([bytes, HttpResponse.parse(bytes).status]).to match([start_with(go_on), 200])
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
