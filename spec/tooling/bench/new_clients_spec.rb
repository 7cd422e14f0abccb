# frozen_string_literal: true

require_relative "../../spec_helper"
require_relative "../../support/tiny_server"
require_relative "../../../bench/support/bench"

RSpec.describe "clients that connect anew for each request", once: "a tool" do
  describe Bench::ClosedLoop do
    def clients(server, **options)
      described_class.new(endpoints: [server.endpoint], paths: { "/" => 1 }, **options)
    end

    it "are told apart from those that keep their connections, also where the server would keep theirs" do
      TinyServer.run(->(_) { TinyServer::Answer.new }) do |server|
        load = clients(server, connections: 5, new_clients: 2).for_seconds(0.3)
        expect(server.sockets.size).to eq(3 + load[:new][:requests])
        expect(load[:kept]).to include(requests: be > 10, clients: 3, served_every_second: 3, p50_us: be > 0)
        expect(load[:new]).to include(requests: be > 10, clients: 2, served_every_second: 2, max_us: be > 0)
        expect(load).to include(clients: 5, requests: load[:kept][:requests] + load[:new][:requests])
        expect(load[:errors].values).to all(eq(0))
      end
    end

    it "have pauses of their own" do
      TinyServer.run(->(_) { TinyServer::Answer.new }) do |server|
        load = clients(server, connections: 2, new_clients: 1, new_pause_ms: 20.0).for_seconds(0.5)
        expect(load[:new][:requests]).to be_between(3, 60)
        expect(load[:kept][:requests]).to be > load[:new][:requests]
      end
    end

    it "are not spoken of where there are none" do
      TinyServer.run(->(_) { TinyServer::Answer.new }) do |server|
        expect(clients(server, connections: 1).for_seconds(0.1).keys).not_to include(:kept, :new)
      end
    end
  end

  describe Bench::Measurements::NewClients do
    def group(requests, latency, gap)
      { requests: requests, p50_us: latency, p95_us: 2 * latency, p99_us: 3 * latency, max_us: 4 * latency, longest_gap_us: gap }
    end

    it "gives the latencies of both, and how many times as long new ones wait" do
      expect(described_class.figures(kept: group(9, 1_000, 3_000), new: group(9, 1_500, 5_000))).to eq(
        "p50_kept_ms" => 1.0, "p50_new_ms" => 1.5, "p50_new_to_kept" => 1.5,
        "p95_kept_ms" => 2.0, "p95_new_ms" => 3.0, "p95_new_to_kept" => 1.5,
        "p99_kept_ms" => 3.0, "p99_new_ms" => 4.5, "p99_new_to_kept" => 1.5,
        "longest_new_ms" => 6.0, "longest_new_to_kept" => 6.0
      )
    end

    it "has no latency of a newcomer that was never answered, but the time that it waited" do
      figures = described_class.figures(kept: group(9, 1_000, 3_000), new: group(0, 0, 10_000_000))
      expect(figures).to include("p50_new_ms" => nil, "p99_new_to_kept" => nil, "longest_new_ms" => 10_000.0,
                                 "longest_new_to_kept" => 10_000.0)
    end
  end

  describe Bench::ConnectionTargets do
    def missed(kind, medians)
      server = { "name" => "fastrack", "failed" => 0, "rounds" => [medians], "medians" => medians, "ratios" => {} }
      described_class.check("name" => kind, "kind" => kind, "servers" => [server]).reject(&:reached?).map(&:subject)
    end

    it "wants new clients to wait about as long as kept ones, and all no longer than in one queue" do
      expect(missed("mix-new", "p50_new_to_kept" => 1.25, "p99_new_to_kept" => 1.25, "p99_to_ideal" => 1.1)).to eq([])
      expect(missed("mix-new", "p50_new_to_kept" => 1.26, "p99_new_to_kept" => nil, "p99_to_ideal" => 1.11).size).to eq(3)
    end

    it "wants a newcomer to wait no longer than for one round of the kept ones, and a half" do
      expect(missed("newcomer", "longest_new_to_kept" => 1.5)).to eq([])
      expect(missed("newcomer", "longest_new_to_kept" => 1.51)).to eq(
        ["the newcomer's longest wait, to the median of kept clients"]
      )
    end
  end
end
