# frozen_string_literal: true

RSpec.describe "A15 the body of a response" do
  before(:context) { serve(HttpApps.ru(:responder)) }

  # What the client gets of each, and its length where that is told.
  {
    "an Array, whose length is told" => ["array", "onetwothree", "11"],
    "an Array of any number of parts" => ["many", (0...5000).map { |index| "#{index}," }.join],
    "a frozen one" => ["frozen", "ab"], "anything with each" => ["each", "onetwothree"],
    "an Enumerator" => ["enumerator", "enum"], "one buffer for all its parts" => ["one-buffer", "firstsecondthird"],
    "an empty Array" => ["empty", "", "0"], "an Array of empty parts" => ["blank", "", "0"],
    "an each without parts" => ["each-empty", ""], "an each with empty ones" => ["each-blank", ""],
    "parts in an Array that are nil or Integers, by their to_s" => ["mixed-array", "ContentAgain0", "13"],
    "parts from each that are nil or Integers" => ["each-mixed", "ContentAgain0"],
    "bytes" => ["binary", (0..255).to_a.pack("C*")], "any encoding" => ["wide", "\u00E9\u4E16".b << "x\0", "7"],
    "large" => ["large", ("x" * 3_000_000) << ("y" * 3_000_000)], "large, by each" => ["each-large", "z" * 5_000_000]
  }.each do |what, (name, sent, length)|
    it "A15 may be #{what}" do
      response = server.get("/body/#{name}")
      expect([response.status, response.body == sent]).to eq([200, true])
      expect(response.headers["Content-Length"]).to eq(length) if length
    end
  end

  it "A15 keeps the app's Content-Length" do
    expect(talk("HEAD /length/each HTTP/1.1", "Host: a").headers.all("Content-Length")).to eq(["10"])
  end

  it "B-app-error answers 500 for what is no body" do
    expect(server.get("/body/string").status).to eq(500)
    expect_worker_alive
  end
end
