# frozen_string_literal: true

RSpec.describe "B-status the limits of a request's head", once: "bytes on the wire" do
  limits = { "MaxRequestTarget" => 100, "MaxHeaderSize" => 1000, "MaxHeaderFields" => 10 }
  before(:context) { serve(HttpApps.ru(:echo), options: limits) }

  def status_of(*lines) = HttpResponse.parse(HttpPeer.exchange(server, message(*lines), half_close: true).first).status

  # What is added to the target, the head, and the fields: as much as may be, and one more.
  rest = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n".bytesize
  { "414 MaxRequestTarget" => ->(more) { ["GET /#{"a" * (99 + more)} HTTP/1.1", "Host: a"] },
    "431 MaxHeaderSize" => ->(more) { ["GET / HTTP/1.1", "Host: a", "X: #{"x" * (1000 - rest + more)}"] },
    "431 MaxHeaderFields" => ->(more) { ["GET / HTTP/1.1", "Host: a", *["X: y"] * (9 + more)] } }.each do |what, head|
    it "B-status-#{what}: takes that much, and refuses one more" do
      expect([0, 1].map { |more| status_of(*head.call(more)) }).to eq([200, what.to_i])
    end
  end

  it "B-status takes larger ones where it is told so" do
    larger = { "MaxRequestTarget" => 100_000, "MaxHeaderSize" => 300_000, "MaxHeaderFields" => 300 }
    wide = Server.start(ru: HttpApps.ru(:echo), options: { "MaxWorkers" => 1, **larger })
    bytes = message("GET /#{"a" * 90_000} HTTP/1.1", "Host: a", *["X: #{"y" * 500}"] * 299)
    expect(HttpResponse.parse(HttpPeer.exchange(wide, bytes, half_close: true).first).status).to eq(200)
  end

  it "B-status takes a target as long as the head may be, if that is less than what a target may have" do
    odd = Server.start(ru: HttpApps.ru(:echo), options: { "MaxWorkers" => 1, "MaxHeaderSize" => 500 })
    HttpPeer.open(odd) do |peer|
      peer.write("GET /#{"a" * 600}")
      expect(HttpResponse.parse(peer.read_to_end).status).to eq(414)
    end
  end
end
