# frozen_string_literal: true

RSpec.describe "B-status the limits of a request's head", once: "bytes on the wire" do
  limits = { "MaxRequestTarget" => 100, "MaxHeaderSize" => 1000, "MaxHeaderFields" => 10 }
  before(:context) { serve(HttpApps.ru(:echo), options: limits) }

  def status_of(*lines) = HttpResponse.parse(HttpPeer.exchange(server, message(*lines), half_close: true).first).status

  it "B-status-414 MaxRequestTarget: takes a target that long, and refuses one byte more" do
    expect([99, 100].map { |size| status_of("GET /#{"a" * size} HTTP/1.1", "Host: a") }).to eq([200, 414])
  end

  it "B-status-431 MaxHeaderSize: takes a head that long, and refuses one byte more" do
    rest = message("GET / HTTP/1.1", "Host: a", "X: ").bytesize
    expect([1000, 1001].map { |size| status_of("GET / HTTP/1.1", "Host: a", "X: #{"x" * (size - rest)}") }).to eq([200, 431])
  end

  it "B-status-431 MaxHeaderFields: takes that many, and refuses one more" do
    expect(status_of("GET / HTTP/1.1", "Host: a", *["X: y"] * 9)).to eq(200)
    expect(status_of("GET / HTTP/1.1", "Host: a", *["X: y"] * 10)).to eq(431)
  end

  it "B-status takes larger ones where it is told so" do
    wide = Server.start(ru: HttpApps.ru(:echo), options: {
                          "MaxWorkers" => 1, "MaxRequestTarget" => 100_000, "MaxHeaderSize" => 300_000, "MaxHeaderFields" => 300
                        })
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
