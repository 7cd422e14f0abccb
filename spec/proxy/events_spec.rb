# frozen_string_literal: true

require "support/http_helpers"
require "support/http_apps/events"
require "support/http_nginx"

RSpec.describe "server-sent events", once: "what nginx sees" do
  before { serve(HttpApps.ru(:events)) }

  after { @nginx&.stop }

  # Each event is there before the server has made the next one.
  def expect_events(place)
    HttpPeer.open(place) do |peer|
      peer.write(message("GET /events HTTP/1.1", "Host: a", "Accept: text/event-stream", "Connection: close"))
      HttpApps::Events::COUNT.times do |number|
        server.write("event-#{number}", "")
        expect(peer.read_until(/data: event #{number}\n\n/)).not_to include("event #{number + 1}")
      end
      peer.read_to_end
      expect(peer.ending).to eq(:closed)
    end
  end

  it "C5 arrive one by one without a proxy" do
    expect_events(server)
  end

  { "by HTTP/1.0" => "", "by HTTP/1.1" => "proxy_http_version 1.1; proxy_set_header Connection \"\";" }.each do |how, settings|
    it "C5 arrive one by one through nginx, which is told not to buffer them, #{how}" do
      @nginx = HttpNginx.new("127.0.0.1:#{server.port}", settings: settings)
      expect_events(@nginx)
    end
  end
end
