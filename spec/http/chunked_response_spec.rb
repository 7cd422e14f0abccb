# frozen_string_literal: true

require "support/http_helpers"

RSpec.describe "A16 the option ChunkedTransfer" do
  before(:context) { serve(HttpApps.ru(:responder), options: { "ChunkedTransfer" => "true" }) }

  def framing(response)
    response.headers.select { |name, _| name.match?(/\A(content-length|transfer-encoding)\z/i) }
  end

  it "A16 sends chunks to HTTP/1.1 when the app tells no length" do
    %w[array each each-mixed one-buffer binary].each do |name|
      plain = talk("GET /body/#{name} HTTP/1.0")
      response = talk("GET /body/#{name} HTTP/1.1", "Host: a", "Connection: close")
      expect(framing(response)).to eq([%w[Transfer-Encoding chunked]])
      expect(response.body).to eq(plain.body)
    end
  end

  it "A16 ends a chunked body once, and with nothing after it" do
    bytes = server.raw(message("GET /body/each HTTP/1.1", "Host: a", "Connection: close"))
    expect(bytes.scan("\r\n0\r\n").size).to eq(1)
    expect(bytes).to end_with("\r\n0\r\n\r\n")
  end

  it "A16 sends no chunk for an empty part, which would end the body" do
    expect(talk("GET /body/each-mixed HTTP/1.1", "Host: a", "Connection: close").body).to eq("ContentAgain0")
    expect(talk("GET /body/mixed-array HTTP/1.1", "Host: a", "Connection: close").body).to eq("ContentAgain0")
  end

  it "A16 sends an empty body as one" do
    %w[empty blank each-empty each-blank].each do |name|
      response = talk("GET /body/#{name} HTTP/1.1", "Host: a", "Connection: close")
      expect(response.status).to eq(200)
      expect(response.body).to eq("")
      expect(framing(response).size).to eq(1)
    end
  end

  it "A16 sends large bodies in chunks" do
    expect(talk("GET /body/each-large HTTP/1.1", "Host: a", "Connection: close").body).to eq("z" * 5_000_000)
    expect(talk("GET /body/large HTTP/1.1", "Host: a", "Connection: close").body.bytesize).to eq(6_000_000)
    expect(talk("GET /body/many HTTP/1.1", "Host: a", "Connection: close").body).to eq((0...5000).map { |index| "#{index}," }.join)
  end

  it "A16 sends no chunks to HTTP/1.0" do
    response = talk("GET /body/each HTTP/1.0")
    expect(response.headers).not_to be_key("Transfer-Encoding")
    expect(response.body).to eq("onetwothree")
  end

  it "A16 sends no chunks with the app's Content-Length" do
    response = HttpResponse.all(server.raw(message("HEAD /length/each HTTP/1.1", "Host: a", "Connection: close")), head_only: true).first
    expect(framing(response)).to eq([%w[Content-Length 10]])
    bytes = server.raw(message("GET /length/each HTTP/1.1", "Host: a", "Connection: close"))
    expect(bytes).not_to match(/transfer-encoding/i)
  end

  it "A16 sends no chunks with HEAD, 1xx, 204 and 304" do
    ["HEAD /body/each", "GET /status/103", "GET /status/204", "GET /status/304"].each do |request|
      bytes = server.raw(message("#{request} HTTP/1.1", "Host: a", "Connection: close"))
      expect(bytes).to match(%r{\AHTTP/1.1 \d+ .*\r\n\r\n\z}m)
      expect(bytes).not_to match(/transfer-encoding/i)
    end
  end
end

RSpec.describe "A16 without the option ChunkedTransfer" do
  before(:context) { serve(HttpApps.ru(:responder)) }

  it "A16 tells the length of an Array" do
    response = talk("GET /body/array HTTP/1.1", "Host: a", "Connection: close")
    expect(response.headers["Content-Length"]).to eq("11")
    expect(response.headers).not_to be_key("Transfer-Encoding")
  end

  it "A16 gives a body of unknown length whole, to HTTP/1.1 and HTTP/1.0" do
    expect(talk("GET /body/each HTTP/1.1", "Host: a", "Connection: close").body).to eq("onetwothree")
    expect(talk("GET /body/each HTTP/1.0").body).to eq("onetwothree")
  end

  # The bytes after the head, whatever the head says about them.
  def after_head(*lines)
    server.raw(message(*lines)).split("\r\n\r\n", 2).last
  end

  it "B-no-body sends no body on HEAD" do
    %w[/ /body/array /body/each /body/large /status/404 /length/array].each do |path|
      expect(after_head("HEAD #{path} HTTP/1.1", "Host: a", "Connection: close")).to eq("")
    end
  end

  [103, 204, 304].each do |code|
    it "B-no-body sends no body on #{code}" do
      %W[/status/#{code} /status-length/#{code}].each do |path|
        expect(after_head("GET #{path} HTTP/1.1", "Host: a", "Connection: close")).to eq("")
      end
    end
  end

  it "B-no-body sends no framing on 204, where there may be none" do
    headers = server.get("/status-length/204").headers
    expect(headers).not_to be_key("Content-Length")
    expect(headers).not_to be_key("Transfer-Encoding")
  end

  it "B-no-body keeps the app's Content-Length on HEAD" do
    bytes = server.raw(message("HEAD /length/array HTTP/1.1", "Host: a", "Connection: close"))
    expect(bytes).to match(/^Content-Length: 10\r$/)
  end

  it "B-no-body sends no body with the refusal of a HEAD" do
    expect(after_head("HEAD / HTTP/1.1", "Host: a", "Expect: nothing")).to eq("")
  end
end
