# frozen_string_literal: true

RSpec.describe "clients that send nothing more, of which there are more than the worker may have descriptors", once: "sockets of the engine" do
  most = 64

  before(:context) { serve(HttpApps.ru(:pacing), wrapper: ["sh", "-c", "ulimit -n #{most}; exec \"$@\"", "sh"]) }

  it "B-slow-head do not keep others from being served: those who have waited longest make room, and are told" do
    silent = Array.new(2 * most) { HttpPeer.new(server).write("GET /never HTTP/1.1\r\nHost: a\r\n") }
    10.times { expect(server.get("/other").body).to eq(@worker.to_s) }
    expect([HttpResponse.parse(silent.first.read_to_end).status, silent.last.anything_within?(0)]).to eq([408, false])
    silent.last.write("Connection: close\r\n\r\n")
    expect(HttpResponse.parse(silent.last.read_to_end).status).to eq(200)
  end
end
