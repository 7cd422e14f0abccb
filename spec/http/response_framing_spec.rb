# frozen_string_literal: true

# Two framing fields would be read in two ways (RFC 9112, 6.2), and a length that is no number in none.
RSpec.describe "D4 one response, one framing", once: "bytes on the wire" do
  before(:context) { serve(HttpApps.ru(:responder)) }

  def framing(response)
    response.headers.map { |name, value| [name.downcase, value] }.select { |name, _| %w[content-length transfer-encoding].include?(name) }
  end

  chunked = [%w[transfer-encoding chunked]]
  length = [%w[content-length 4]]
  # What the app says, and what is sent.
  { "drops the Content-Length beside a Transfer-Encoding, and sends all of it" => [%w[framed/coding-length framed/length-coding], chunked],
    "replaces a Content-Length that is no number" => [%w[headers/length-word headers/length-sign headers/length-lines], length],
    "sends the first of two lengths" => [%w[headers/length-twice], length] }.each do |what, (paths, fields)|
    it "D4 #{what}" do
      (paths * 2).each do |path|
        response = talk("GET /#{path} HTTP/1.1", "Host: a")
        expect([path, framing(response), response.body]).to eq([path, fields, "body"])
      end
    end
  end

  it "D4 goes on with the connection after each of them" do
    HttpPeer.open(server) do |peer|
      paths = %w[/framed/coding-length /headers/length-word /headers/length-twice /framed/length-coding]
      paths.each { |path| peer.write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n") }
      peer.write("GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
      responses = HttpResponse.all(peer.read_to_end)
      expect(responses.map(&:body)).to eq(%w[body body body body hello])
    end
  end
end
