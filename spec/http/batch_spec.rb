# frozen_string_literal: true

RSpec.describe "requests that become complete while the worker is busy with another one", once: "bytes on the wire" do
  include HttpGates

  # The responses to halves of requests that got their other halves while one request was in the app.
  def responses_at_once(*paths)
    halves = paths.map { |path| half_ask(path) }
    busy = ask("/gate/slow")
    await_gate("slow")
    halves.each { |peer| peer.write("\r\n") }
    open_gate("slow")
    (busy + halves).map(&:read_to_end)
  end

  it "A9 are all answered, and a worker whose limit they passed is replaced all the same" do
    # Two ask who comes later, one is at the gate: the limit is reached by the first of the halves, or before.
    serve(HttpApps.ru(:kept), options: { "MaxRequestPerChild" => 4 })
    slow, *others = responses_at_once("/one", "/two").map { |bytes| HttpResponse.parse(bytes) }
    expect([slow.body, others.map(&:status)]).to eq([@worker.to_s, [200, 200]])
    server.await_workers(1) { |found| found != [@worker] }
    expect(Array.new(5) { server.get("/next").body }).not_to include(@worker.to_s)
  end

  it "B-app-error are answered by a worker whose app has just ended it, and others by the next worker" do
    serve(HttpApps.ru(:kept), options: { "ErrRespawnInterval" => 0 })
    slow, ended, *others = responses_at_once("/exit", "/one", "/exit", "/two")
    expect(HttpResponse.parse(slow).body).to eq(@worker.to_s)
    expect(([ended] + others).map { |bytes| HttpResponse.parse(bytes).status }).to match_array([500, 200, 500, 200])
    server.await_workers(1) { |found| found != [@worker] }
    expect(server.get("/next").status).to eq(200)
  end
end
