# frozen_string_literal: true

RSpec.describe "C4 A client that has left", once: "sockets of the engine" do
  before { serve_kept }

  def gone_lines = journal.lines.grep(/gone=/).map { |line| line.split.last }

  %i[close abort].each do |manner|
    it "is known to the app by fastrack.client_gone (#{manner})" do
      one = peer.tap { |kept| kept.get("/pid") }.ask("/gone/never")
      eventually { calls_of("/gone/never") == 1 }
      one.public_send(manner)
      expect(eventually { gone_lines.first }).to eq("gone=true")
      expect_worker_alive
    end

    it "is dropped when it was in the queue, before the app is called, and counted (#{manner})" do
      ones = kept_peers(3)
      occupy("busy")
      before = settled_sockets(@worker)
      ones.each.with_index(201) { |one, code| one.ask("/status/#{code}") }
      # Then all have been read.
      eventually { sockets(@worker) == before - 3 }
      ones[1].public_send(manner)
      open_gate("busy")
      expect([ones[0], ones[2]].map { |one| one.answer.status }).to eq([201, 203])
      expect(calls).not_to include("/status/202")
      expect(server.get("/dropped").body).to eq("1")
    end
  end

  it "is not confused with one that is there" do
    one = peer.ask("/gone/enough")
    eventually { calls_of("/gone/enough") == 1 }
    open_gate("enough")
    expect([one.answer.status, gone_lines]).to eq([200, ["gone=false"]])
  end
end
