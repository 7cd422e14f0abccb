# frozen_string_literal: true

RSpec.describe "server-sent events", once: "what nginx sees" do
  # Each event is sent when the file of its number is there, which the client writes once it has the one before.
  before { serve(<<~'RUBY') }
    event = lambda do |number|
      sleep 0.005 until File.exist?("event-#{number}")
      "id: #{number}\ndata: event #{number}\n\n"
    end
    headers = { "content-type" => "text/event-stream", "cache-control" => "no-cache", "x-accel-buffering" => "no" }
    run ->(_env) { [200, headers.dup, Enumerator.new { |parts| 3.times { |number| parts << event.call(number) } }] }
  RUBY

  after { @nginx&.stop }

  # Each event is there before the server has made the next one.
  def expect_events(place)
    HttpPeer.open(place) do |peer|
      peer.write(message("GET /events HTTP/1.1", "Host: a", "Accept: text/event-stream", "Connection: close"))
      3.times do |number|
        server.write("event-#{number}", "")
        expect(peer.read_until(/data: event #{number}\n\n/)).not_to include("event #{number + 1}")
      end
      peer.read_to_end
      expect(peer.ending).to eq(:closed)
    end
  end

  it("C5 arrive one by one without a proxy") { expect_events(server) }

  { "by HTTP/1.0" => "", "by HTTP/1.1" => "proxy_http_version 1.1; proxy_set_header Connection \"\";" }.each do |how, settings|
    it "C5 arrive one by one through nginx, which is told not to buffer them, #{how}" do
      @nginx = HttpNginx.new("127.0.0.1:#{server.port}", settings: settings)
      expect_events(@nginx)
    end
  end
end
