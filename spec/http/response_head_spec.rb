# frozen_string_literal: true

require "time"
require "support/http_helpers"

RSpec.describe "A14 the head of a response" do
  before(:context) { serve(HttpApps.ru(:responder)) }

  def head(name)
    server.get("/headers/#{name}")
  end

  it "A14 has status line, Date, Server, app headers, framing, Connection in this order" do
    response = head("plain")
    expect(response.raw).to start_with("HTTP/1.1 200 OK\r\n")
    expect(response.headers.names).to eq(%w[Date Server X-One x-two X-THREE Content-Length Connection])
  end

  it "A14 says when and by whom: Date is now, in the form of RFC 9110" do
    headers = head("plain").headers
    expect(headers["Date"]).to match(/\A(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT\z/)
    expect(Time.httpdate(headers["Date"])).to be_within(5).of(Time.now)
    expect(headers["Server"]).to eq("Fastrack")
  end

  it "A14 lets the app's Date and Server win, in our place for them, and has each once" do
    response = head("date-server")
    expect(response.headers.names).to eq(%w[Date sErVer Content-Length Connection])
    expect(response.headers.to_a.first(2)).to eq([%w[Date yesterday], %w[sErVer Mine]])
  end

  it "A14 decides on Connection itself" do
    expect(head("connection").headers.all("connection")).to eq(["close"])
  end

  it "A14 keeps names and values as the app spelt them" do
    expect(head("plain").raw).to include("\r\nX-One: 1\r\nx-two: 2\r\nX-THREE: \r\n")
  end

  it "A14 makes a line of each part of \"Foo\\nBar\", and none of an empty part" do
    headers = head("lines").headers
    expect(headers.all("X-Foo")).to eq(%w[Foo Bar])
    expect(headers.all("X-Bar")).to eq(%w[Foo Bar])
    expect(headers.all("X-Baz")).to eq(%w[Baz])
    expect(headers.all("X-Fuga")).to eq(%w[Fuga])
    expect(headers).not_to be_key("X-None")
  end

  it "A14 makes a line of each member of an Array" do
    headers = head("arrays").headers
    expect(headers.all("x-list")).to eq(%w[a b])
    expect(headers.all("x-one")).to eq(%w[c])
    expect(headers.all("set-cookie")).to eq(%w[d=1 e=2])
    expect(headers).not_to be_key("x-none")
  end

  it "A14 takes values that are no Strings by their to_s, as Rhebok does" do
    expect(head("types").headers.to_a).to include(%w[X-Symbol sym], %w[X-Integer 12])
  end

  it "A14 takes headers from anything that yields pairs" do
    expect(server.get("/pairs").headers.to_a).to include(%w[x-pair one], %w[x-list two])
  end

  it "A14 keeps headers that are for the server to itself" do
    expect(head("rack").headers.names).to eq(%w[Date Server X-Shown Content-Length Connection])
  end

  it "A14 sends bytes as they are" do
    headers = head("binary").headers
    expect(headers["X-Latin"]).to eq("caf\xE9".b)
    expect(headers["X-Utf"]).to eq("caf\u00E9".b)
    expect(headers["X-Tab"]).to eq("a\tb")
  end

  it "A14 sends a head of any length" do
    headers = head("many").headers
    expect((1..200).map { |index| headers["X-#{index}"] }).to all(eq("v" * 100))
  end

  it "A14 has the reason of each status, and none where there is none" do
    {
      200 => "OK", 201 => "Created", 302 => "Found", 404 => "Not Found", 418 => nil, 422 => /\AUnprocessable/,
      451 => "Unavailable For Legal Reasons", 500 => "Internal Server Error", 503 => "Service Unavailable"
    }.each do |code, reason|
      response = server.get("/status/#{code}")
      expect(response.status).to eq(code)
      expect(response.reason).to match(reason) if reason
    end
    expect(server.get("/status/799").raw).to match(%r{\AHTTP/1\.1 799 [^\r]*\r\n})
  end

  %w[cr crlf nul array-lf name-lf name-crlf name-space name-colon name-empty name-nul date-crlf server-cr length-crlf].each do |name|
    it "B-header-injection never lets #{name} onto the wire" do
      response = head(name)
      fields = response.raw.split("\r\n\r\n").first
      expect(fields.delete("^\0")).to be_empty
      expect(fields.gsub("\r\n", "")).not_to match(/[\r\n]/)
      expect(fields).not_to match(/^Injected/i)
      expect(response.status).to eq(500)
      expect_worker_alive
    end
  end

  it "B-header-injection tells the app's author which header it was" do
    head("crlf")
    eventually { server.log.match?(/"X-Bad"/) }
  end
end

RSpec.describe "A14 the head of a response over a unix socket" do
  before(:context) { serve(HttpApps.ru(:responder), unix: true) }

  it "A14 is the same as over TCP" do
    expect(server.get("/headers/plain").headers.names).to eq(%w[Date Server X-One x-two X-THREE Content-Length Connection])
  end
end
