# frozen_string_literal: true

# Two framing fields would be read in two ways (RFC 9112, 6.2), and a length that is no number in none.
RSpec.describe "D4 one response, one framing", once: "bytes on the wire" do
  before(:context) { serve(HttpApps.ru(:responder)) }

  def framing(response)
    response.headers.to_a.select { |name, _| name.match?(/\A(content-length|transfer-encoding)\z/i) }
  end

  def kept(path) = talk("GET #{path} HTTP/1.1", "Host: a", "Connection: close")

  %w[coding-length length-coding].each do |name|
    it "D4 drops the Content-Length beside a Transfer-Encoding, and sends all of the body (#{name})" do
      2.times do
        response = kept("/framed/#{name}")
        expect(framing(response).map { |field, value| [field.downcase, value] }).to eq([%w[transfer-encoding chunked]])
        expect(response.body).to eq("body")
      end
    end
  end

  %w[length-word length-sign length-lines].each do |name|
    it "D4 replaces a Content-Length that is no number by the body's own (#{name})" do
      2.times do
        response = kept("/headers/#{name}")
        expect(framing(response)).to eq([%w[Content-Length 4]])
        expect(response.body).to eq("body")
      end
    end
  end

  it "D4 sends the first of two lengths" do
    response = kept("/headers/length-twice")
    expect(framing(response)).to eq([%w[Content-Length 4]])
    expect(response.body).to eq("body")
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
