# frozen_string_literal: true

require "support/http_helpers"

RSpec.describe "B-half-response half a response never passes for a whole one" do
  # What the client sees of a response whose body fails after ten bytes.
  def half(name, protocol: "HTTP/1.1")
    HttpPeer.exchange(server, message("GET /#{name} #{protocol}", "Host: a", "Connection: close"))
  end

  # Each of them fails with a StandardError, and with an exception that is none.
  names = %w[half half-grave]

  context "over TCP" do
    before(:context) { serve(HttpApps.ru(:pacing)) }

    names.each do |name|
      it "B-half-response is reset where its end is the connection's (#{name})" do
        bytes, ending = half(name)
        expect(bytes).to end_with("0123456789").or eq("")
        expect(ending).to eq(:reset)
        expect(half(name, protocol: "HTTP/1.0").last).to eq(:reset)
        expect_worker_alive
      end

      it "B-half-response is reset where its length was told (#{name})" do
        bytes, ending = half(name.sub("half", "half-length"))
        expect { HttpResponse.parse(bytes) }.to raise_error(HttpResponse::Malformed)
        expect(ending).to eq(:reset)
        expect_worker_alive
      end
    end

    it "B-half-response has its exception on rack.errors" do
      half("half")
      eventually { server.log.include?("in the middle (RuntimeError)") }
    end

    if HttpApps.rack3?
      it "B-half-response is reset when a streaming body fails (Rack 3)" do
        expect(half("half-stream").last).to eq(:reset)
        expect_worker_alive
      end
    end
  end

  context "over TCP, in chunks" do
    before(:context) { serve(HttpApps.ru(:pacing), options: { "ChunkedTransfer" => true }) }

    names.each do |name|
      it "B-half-response has no last chunk (#{name})" do
        bytes, ending = half(name)
        expect(bytes).not_to match(/^0\r\n/)
        expect { HttpResponse.parse(bytes) }.to raise_error(HttpResponse::Malformed)
        expect(ending).to eq(:reset)
        expect_worker_alive
      end
    end
  end

  # A unix socket knows no reset: only the framing can tell.
  context "over a unix socket" do
    before(:context) { serve(HttpApps.ru(:pacing), options: { "ChunkedTransfer" => true }, unix: true) }

    names.each do |name|
      it "B-half-response has no last chunk (#{name})" do
        bytes, = half(name)
        expect(bytes).not_to match(/^0\r\n/)
        expect { HttpResponse.parse(bytes) }.to raise_error(HttpResponse::Malformed)
        expect_worker_alive
      end

      it "B-half-response is short of its length (#{name})" do
        bytes, = half(name.sub("half", "half-length"))
        expect { HttpResponse.parse(bytes) }.to raise_error(HttpResponse::Malformed)
      end
    end
  end
end
