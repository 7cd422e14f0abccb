# frozen_string_literal: true

RSpec.describe "B-half-response half a response never passes for a whole one" do
  # What the client sees of a response whose body fails after ten bytes.
  def half(name, protocol: "HTTP/1.1") = HttpPeer.exchange(server, message("GET /#{name} #{protocol}", "Host: a", "Connection: close"))

  # Each of them fails with a StandardError, and with an exception that is none.
  names = %w[half half-grave]

  # A unix socket knows no reset: there only the framing can tell.
  { "over TCP" => [{}, false, Front::CUT], "over TCP, in chunks" => [{ "ChunkedTransfer" => true }, false, Front::CUT],
    "over a unix socket, in chunks" => [{ "ChunkedTransfer" => true }, true, :closed] }.each do |where, (options, unix, how)|
    context where do
      before(:context) { serve(HttpApps.ru(:pacing), options: options, unix: unix) }

      names.each do |name|
        it "B-half-response shows it by its end, and by its framing (#{name})" do
          bytes, ending = half(name)
          expect(ending).to eq(how)
          options.empty? ? expect(bytes).to(match(/0123456789(?:\r\n)?\z|\A\z/)) : expect { HttpResponse.parse(bytes) }.to(raise_error(HttpResponse::Malformed))
          expect(half(name, protocol: "HTTP/1.0").last).to eq(how)
          expect_worker_alive
        end

        it "B-half-response is short of its length (#{name})" do
          bytes, ending = half(name.sub("half", "half-length"))
          expect { HttpResponse.parse(bytes) }.to raise_error(HttpResponse::Malformed)
          expect(ending).to eq(how)
        end
      end
    end
  end

  it "B-half-response has its exception on rack.errors, and a streaming body is reset, too (Rack 3)" do
    serve(HttpApps.ru(:pacing))
    half("half")
    eventually { server.log.include?("in the middle (RuntimeError)") }
    expect(half("half-stream").last).to eq(:reset) if HttpApps.rack3?
    expect_worker_alive
  end
end
