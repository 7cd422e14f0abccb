# frozen_string_literal: true

require_relative "../../bench/support/bench"

# The arithmetic of the published figures.
RSpec.describe "The benchmark", once: "the benchmark's programs" do
  describe Bench::Statistics do
    it "gives medians without the gaps, all errors, and of clients the worst round" do
      expect([[9, 1, 5], [1, 9, 3, 5], [nil, 2, nil], [nil]].map { |values| described_class.median(values) }).to eq([5, 4.0, 2, nil])
      rounds = [[100.0, 1, 4], nil, [300.0, 2, 3]].map { |round| round && %w[rps errors clients_served].zip(round).to_h.merge("clients" => 4) }
      expect(described_class.medians(rounds)).to include("rps" => 200.0, "errors" => 3, "clients_served" => 3)
    end

    it "compares within each round, and leaves those out in which one of the two has nothing" do
      mine, other = [[10.0, 40.0, 12.0, nil, 5.0], [20.0, 80.0, 60.0, 1.0, 0.0]].map { |all| all.map { |us| us && { "cpu_us" => us } } }
      # The ratio of the medians would be 11 / 20.
      expect(described_class.ratios(mine, other)).to eq("cpu_us" => 0.5)
    end
  end

  it "divides CPU time by all requests, and counts for requests per second those that were answered in time" do
    load = { requests: 2_000, in_time: 1_000, duration_us: 4_000_000, clients: 8, served_every_second: 7, longest_gap_us: 1_500_000,
             p50_us: 1_500, p95_us: 2_000, p99_us: 3_250, max_us: 9_000, errors: { connect: 1, status: 2 } }
    expect(Bench::Measurements::Load.result(50_000_000, load)).to include("cpu_us" => 25.0, "rps" => 250.0, "p99_ms" => 3.25, "errors" => 3)
    expect(Bench::Measurements::Load.least_share([30, 50, 20])).to eq(0.2)
  end
end
