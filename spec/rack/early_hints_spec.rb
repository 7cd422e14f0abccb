# frozen_string_literal: true

RSpec.describe "C5 rack.early_hints" do
  # One interim response, with its fields.
  let(:interim) { %r{\AHTTP/1\.1 103 Early Hints\r\n((?:[^\r]+\r\n)*)\r\n} }

  context "with EarlyHints" do
    before(:context) { serve(HttpApps.ru(:hinting), options: { "EarlyHints" => true }) }

    # The headers of the hints, and the response after them.
    def hinted(path, version: "1.1")
      bytes, = HttpPeer.exchange(server, message("GET #{path} HTTP/#{version}", "Host: a", "Connection: close"))
      hints = []
      while (fields = bytes[interim, 1])
        hints << fields.split("\r\n")
        bytes = bytes.sub(interim, "")
      end
      [hints, HttpResponse.parse(bytes)]
    end

    links = ["link: </a.css>; rel=preload", "link: </b.js>; rel=preload"]
    # Paths, and the headers of each hint.
    { "103 with the headers, before the response" => ["/lines", [links]], "a line for each member of an Array" => ["/array", [links]],
      "as many as the app has" => ["/twice", [links, ["link: </c>"]]], "nothing for no headers" => ["/none", []],
      "none that would frame a body" => ["/framing", [["link: </a>"]]] }.each do |what, (path, expected)|
      it "C5 sends #{what}" do
        hints, response = hinted(path)
        expect([hints, response.status, response.body]).to eq([expected, 200, "one"])
      end
    end

    it "C5 sends it at once, and nothing to a client of HTTP/1.0, which knows no interim responses" do
      HttpPeer.open(server) do |peer|
        peer.write(message("GET /lines HTTP/1.1", "Host: a"))
        expect(peer.read_until(/\r\n\r\n/)).to match(interim)
      end
      hints, response = hinted("/lines", version: "1.0")
      expect([hints, response.body]).to eq([[], "one"])
    end

    it "C5 sends a whole response after them when the app raises" do
      hints, response = hinted("/raises")
      expect([hints.size, response.status]).to eq([1, 500])
      expect_worker_alive
    end

    it "C5 raises what is wrong with the headers in the app, and sends none of them" do
      %w[/bad /no-headers].each { |path| expect(hinted(path)).to match([[], have_attributes(status: 500)]) }
      eventually { server.log.include?("(ArgumentError)") && server.log.include?("(NoMethodError)") }
      expect_worker_alive
    end

    it "C5 sends nothing for a Fiber that comes back to it when its request is over" do
      { "/leave" => "IOError", "/leave-block" => "ThreadError" }.each do |path, error|
        expect(hinted(path)).to match([[], have_attributes(status: 200, body: "left")])
        expect(hinted("/back")).to match([[], have_attributes(status: 200, body: error)])
      end
      expect_worker_alive
    end

    it("C5 raises an IOError when the response has begun") { expect(hinted("/late").last.body).to eq("oneIOError") }
  end

  it "C5 is not there without the option: a proxy that knows no 103 would take it for the response" do
    serve(HttpApps.ru(:hinting))
    expect(server.get("/lines").body).to eq("no hints")
  end
end
