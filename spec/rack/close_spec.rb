# frozen_string_literal: true

require "support/http_helpers"

RSpec.describe "A15 close" do
  before(:context) { serve(HttpApps.ru(:closing), options: { "Timeout" => 60 }) }

  # What was done to the body of that name by now; close may come after the response.
  def done_to(name)
    journal.lines.select { |line| line.start_with?("#{name} ") }.map { |line| line.split(" ", 2).last }
  end

  # What has been done to the body once it has been closed, and another request has been served: nothing comes later.
  def finally_done_to(name)
    eventually(10, -> { "#{name}: #{done_to(name)}" }) { done_to(name).include?("close") }
    server.get("/other")
    done_to(name)
  end

  # Requests something under that name, so that its lines are its own.
  def request(name, verb: "GET")
    HttpPeer.exchange(server, message("#{verb} /#{name} HTTP/1.1", "Host: a", "Connection: close"))
  end

  it "A15 close is called once after a whole response" do
    bytes, ending = request("normal")
    expect(HttpResponse.parse(bytes).body).to eq("onetwo")
    expect(ending).to eq(:closed)
    expect(finally_done_to("normal")).to eq(%w[each close])
  end

  it "A15 close is called once after a body without parts" do
    request("nothing")
    expect(finally_done_to("nothing")).to eq(%w[each close])
  end

  it "A15 close is called once on HEAD, whose body is not asked for parts" do
    bytes, = request("headless", verb: "HEAD")
    expect(bytes).to end_with("\r\n\r\n")
    expect(finally_done_to("headless")).to eq(%w[close])
  end

  %w[204 304].each do |code|
    it "A15 close is called once on #{code}" do
      request("status-#{code}")
      expect(finally_done_to("status-#{code}")).to eq(%w[close])
    end
  end

  it "A15 close is called once when each raises before the first part, and the answer is 500" do
    bytes, = request("fails-at-once")
    expect(HttpResponse.parse(bytes).status).to eq(500)
    expect(finally_done_to("fails-at-once")).to eq(%w[each close])
    expect_worker_alive
  end

  it "A15 close is called once when each raises after a part" do
    _, ending = request("fails-later")
    expect(ending).to eq(:reset)
    expect(finally_done_to("fails-later")).to eq(%w[each close])
    expect_worker_alive
  end

  it "A15 close is called once when each raises what is no StandardError" do
    _, ending = request("fails-gravely")
    expect(ending).to eq(:reset)
    expect(finally_done_to("fails-gravely")).to eq(%w[each close])
    expect_worker_alive
  end

  it "A15 close is called once when close itself raises; the response stands" do
    bytes, = request("close-fails")
    expect(HttpResponse.parse(bytes).body).to eq("onetwo")
    expect(finally_done_to("close-fails")).to eq(%w[each close])
    expect_worker_alive
  end

  it "A15 close is called once when a header cannot be sent" do
    bytes, = request("bad-header")
    expect(HttpResponse.parse(bytes).status).to eq(500)
    expect(finally_done_to("bad-header")).to eq(%w[close])
  end

  it "A15 close is called once when status or headers are none" do
    %w[bad-status no-headers].each do |name|
      bytes, = request(name)
      expect(HttpResponse.parse(bytes).status).to eq(500)
      expect(finally_done_to(name)).to eq(%w[close])
    end
    expect_worker_alive
  end

  it "A15 close is called once when the client goes away mid-body, soon after it went" do
    HttpPeer.open(server) do |peer|
      peer.write(message("GET /endless HTTP/1.1", "Host: a"))
      peer.read_until(/eeee/)
      peer.abort
    end
    expect(finally_done_to("endless")).to eq(%w[each close])
    expect_worker_alive
  end

  it "A15 close is called on an Array that has one" do
    bytes, = request("closable-array")
    expect(HttpResponse.parse(bytes).body).to eq("onetwo")
    expect(finally_done_to("closable-array")).to eq(%w[close])
  end

  if HttpApps.rack3?
    it "A15 close is not called again after to_ary, which closes the body itself (Rack 3)" do
      bytes, = request("to-ary")
      expect(HttpResponse.parse(bytes).body).to eq("onetwo")
      expect(finally_done_to("to-ary")).to eq(%w[to_ary close])
    end

    it "A15 close is called once on HEAD for a body with to_ary (Rack 3)" do
      request("to-ary", verb: "HEAD")
      server.get("/other")
      closes = done_to("to-ary").count("close")
      request("to-ary", verb: "HEAD")
      server.get("/other")
      expect(done_to("to-ary").count("close")).to eq(closes + 1)
    end

    it "A15 close is called once on a streaming body (Rack 3)" do
      bytes, ending = request("streaming")
      expect(HttpResponse.parse(bytes).body).to eq("streamed")
      expect(ending).to eq(:closed)
      expect(finally_done_to("streaming")).to eq(%w[call close])
    end
  else
    it "A15 close is called once on a body with to_ary, which Rack 2 does not know" do
      bytes, = request("to-ary")
      expect(HttpResponse.parse(bytes).body).to eq("onetwo")
      expect(finally_done_to("to-ary")).to eq(%w[each close])
    end

    it "A15 close is called once on a streaming body, which Rack 2 does not know: 500" do
      bytes, = request("streaming")
      expect(HttpResponse.parse(bytes).status).to eq(500)
      expect(finally_done_to("streaming")).to eq(%w[close])
    end
  end
end
