# frozen_string_literal: true

RSpec.describe "A15 close" do
  before(:context) { serve(HttpApps.ru(:closing), options: { "Timeout" => 60 }) }

  # What was done to the body of that name by now; close may come after the response.
  def done_to(name) = journal.lines.select { |line| line.start_with?("#{name} ") }.map { |line| line.split(" ", 2).last }

  # What has been done to the body once it has been closed, and another request has been served: nothing comes later.
  def finally_done_to(name)
    eventually(10, -> { "#{name}: #{done_to(name)}" }) { done_to(name).include?("close") }
    server.get("/other")
    done_to(name)
  end

  # Requests something under that name, so that its lines are its own.
  def request(name, verb: "GET") = HttpPeer.exchange(server, message("#{verb} /#{name} HTTP/1.1", "Host: a", "Connection: close"))

  # What the app answers with; what the client sees of it, a body, a status or how the connection ends; and what is done to the body.
  {
    "after a whole response" => ["normal", "onetwo", %w[each close]],
    "after a body without parts" => ["nothing", "", %w[each close]], "on 204" => ["status-204", 204, %w[close]],
    "on 304" => ["status-304", 304, %w[close]],
    "when each raises before the first part, and the answer is 500" => ["fails-at-once", 500, %w[each close]],
    "when each raises after a part" => ["fails-later", :reset, %w[each close]],
    "when each raises what is no StandardError" => ["fails-gravely", :reset, %w[each close]],
    "when close itself raises; the response stands" => ["close-fails", "onetwo", %w[each close]],
    "when a header cannot be sent" => ["bad-header", 500, %w[close]],
    "when the status is none" => ["bad-status", 500, %w[close]],
    "when the headers are none" => ["no-headers", 500, %w[close]],
    "on an Array that has one" => ["closable-array", "onetwo", %w[close]],
    **(if HttpApps.rack3?
         { "by to_ary, which closes the body itself, and not again (Rack 3)" => ["to-ary", "onetwo", %w[to_ary close]],
           "on a streaming body (Rack 3)" => ["streaming", "streamed", %w[call close]] }
       else
         { "on a body with to_ary, which Rack 2 does not know" => ["to-ary", "onetwo", %w[each close]],
           "on a streaming body, which Rack 2 does not know: 500" => ["streaming", 500, %w[close]] }
       end)
  }.each do |what, (name, seen, done)|
    it "A15 close is called once #{what}" do
      bytes, ending = request(name)
      expect(seen == :reset ? ending : HttpResponse.parse(bytes).then { |response| seen.is_a?(String) ? response.body : response.status }).to eq(seen)
      expect(finally_done_to(name)).to eq(done)
      expect_worker_alive
    end
  end

  it "A15 close is called once on HEAD, whose body is not asked for parts" do
    bytes, = request("headless", verb: "HEAD")
    expect([bytes, finally_done_to("headless")]).to match([end_with("\r\n\r\n"), %w[close]])
  end

  it "A15 close is called once when the client goes away mid-body, soon after it went" do
    abandon("/endless", /eeee/)
    expect(finally_done_to("endless")).to eq(%w[each close])
    expect_worker_alive
  end

  it "A15 close is called once on HEAD for a body with to_ary (Rack 3)", if: HttpApps.rack3? do
    closes = Array.new(2) { request("to-ary", verb: "HEAD") && server.get("/other") && done_to("to-ary").count("close") }
    expect(closes[1]).to eq(closes[0] + 1)
  end
end
