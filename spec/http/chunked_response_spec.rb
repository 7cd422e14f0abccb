# frozen_string_literal: true

RSpec.describe "A16 the option ChunkedTransfer", once: "bytes on the wire" do
  before(:context) { serve(HttpApps.ru(:responder), options: { "ChunkedTransfer" => "true" }) }

  def framing(response) = response.headers.to_h { |name, value| [name.downcase, value] }.slice("content-length", "transfer-encoding")
  def kept(path) = talk("GET #{path} HTTP/1.1", "Host: a", "Connection: close")

  it "A16 sends chunks to HTTP/1.1 when the app tells no length, and none to HTTP/1.0" do
    %w[array each each-mixed mixed-array one-buffer binary each-large large many].each do |name|
      plain = talk("GET /body/#{name} HTTP/1.0")
      response = kept("/body/#{name}")
      expect(framing(response)).to eq("transfer-encoding" => "chunked")
      expect(plain.headers).not_to be_key("Transfer-Encoding")
      expect([response.body, response.raw.scan("\r\n0\r\n").size]).to eq([plain.body, 1])
    end
  end

  it "A16 sends an empty body as one" do
    %w[empty blank each-empty each-blank].each do |name|
      response = kept("/body/#{name}")
      expect([response.status, response.body, framing(response).size]).to eq([200, "", 1])
    end
  end

  it "A16 sends no chunks with the app's Content-Length" do
    response = HttpResponse.all(server.raw(message("HEAD /length/each HTTP/1.1", "Host: a", "Connection: close")), head_only: true).first
    expect(framing(response)).to eq("content-length" => "10")
    bytes = server.raw(message("GET /length/each HTTP/1.1", "Host: a", "Connection: close"))
    expect(bytes).not_to match(/transfer-encoding/i)
  end

  it "A16 sends no chunks with HEAD, 204 and 304" do
    ["HEAD /body/each", "GET /status/204", "GET /status/304"].each do |request|
      bytes = server.raw(message("#{request} HTTP/1.1", "Host: a", "Connection: close"))
      expect(bytes).to match(%r{\AHTTP/1.1 \d+ .*\r\n\r\n\z}m)
      expect(bytes).not_to match(/transfer-encoding/i)
    end
  end
end

RSpec.describe "A16 without the option ChunkedTransfer", once: "bytes on the wire" do
  before(:context) { serve(HttpApps.ru(:responder)) }

  # The bytes after the head, whatever the head says about them.
  def after_head(*lines) = server.raw(message(*lines)).split("\r\n\r\n", 2).last

  { "on HEAD" => %w[/ /body/array /body/each /body/large /status/404 /length/array].map { |path| ["HEAD #{path}"] },
    "with the refusal of a HEAD" => [["HEAD /", "Expect: nothing"]],
    **[204, 304].to_h { |code| ["on #{code}", [["GET /status/#{code}"], ["GET /status-length/#{code}"]]] } }.each do |when_, requests|
    it "B-no-body sends no body #{when_}" do
      requests.each { |line, *fields| expect(after_head("#{line} HTTP/1.1", "Host: a", "Connection: close", *fields)).to eq("") }
    end
  end

  it "B-no-body sends no framing on 204, where there may be none" do
    headers = server.get("/status-length/204").headers
    expect(headers).not_to be_key("Content-Length")
    expect(headers).not_to be_key("Transfer-Encoding")
  end

  it "B-no-body sends no body with the refusal of a HEAD" do
    expect(after_head("HEAD / HTTP/1.1", "Host: a", "Expect: nothing")).to eq("")
  end
end
