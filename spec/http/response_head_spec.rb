# frozen_string_literal: true

require "time"

RSpec.describe "A14 the head of a response" do
  before(:context) { serve(HttpApps.ru(:responder)) }

  def head(name) = server.get("/headers/#{name}")

  it "A14 has status line, Date, Server, app headers as the app spelt them, framing, Connection in this order" do
    response = head("plain")
    expect(response.raw).to start_with("HTTP/1.1 200 OK\r\n").and include("\r\nX-One: 1\r\nx-two: 2\r\nX-THREE: \r\n")
    expect(response.headers.names).to eq(%w[Date Server X-One x-two X-THREE Content-Length Connection])
  end

  it "A14 says when and by whom: Date is now, in the form of RFC 9110" do
    before = Time.at(Time.now.to_i)
    headers = head("plain").headers
    expect(headers["Date"]).to match(/\A(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT\z/)
    expect(Time.httpdate(headers["Date"])).to be_between(before - 1, Time.now)
    expect(headers["Server"]).to eq("Fastrack")
  end

  it "A14 lets the app's Date and Server win, in our place for them, and has each once" do
    response = head("date-server")
    expect(response.headers.to_a.first(2)).to eq([%w[Date yesterday], %w[sErVer Mine]])
    expect(response.headers.names.drop(2)).to eq(%w[Content-Length Connection])
  end

  it("A14 decides on Connection itself") { expect(head("connection").headers.all("connection")).to eq(["close"]) }

  { 'a line of each part of "Foo\nBar", and none of an empty part' =>
      ["lines", { "X-Foo" => %w[Foo Bar], "X-Bar" => %w[Foo Bar], "X-Baz" => %w[Baz], "X-Fuga" => %w[Fuga], "X-None" => [] }],
    "a line of each member of an Array" => ["arrays", { "x-list" => %w[a b], "x-one" => %w[c], "set-cookie" => %w[d=1 e=2], "x-none" => [] }],
    "a line of what is no String, by its to_s, as Rhebok does" => ["types", { "X-Symbol" => %w[sym], "X-Integer" => %w[12] }],
    "bytes as they are" => ["binary", { "X-Latin" => ["caf\xE9".b], "X-Utf" => ["caf\u00E9".b], "X-Tab" => ["a\tb"] }],
    "a head of any length" => ["many", (1..200).to_h { |index| ["X-#{index}", ["v" * 100]] }] }.each do |what, (name, lines)|
    it "A14 sends #{what}" do
      headers = head(name).headers
      expect(lines.to_h { |field, _| [field, headers.all(field)] }).to eq(lines)
    end
  end

  it "A14 takes headers from anything that yields pairs" do
    expect(server.get("/pairs").headers.to_a).to include(%w[x-pair one], %w[x-list two])
  end

  it "A14 keeps headers that are for the server to itself" do
    expect(head("rack").headers.names).to eq(%w[Date Server X-Shown Content-Length Connection])
  end

  it "A14 has the reason of each status, and none where there is none" do
    { 200 => "OK", 201 => "Created", 302 => "Found", 404 => "Not Found", 418 => nil, 422 => /\AUnprocessable/,
      451 => "Unavailable For Legal Reasons", 500 => "Internal Server Error", 503 => "Service Unavailable" }.each do |code, reason|
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
