# frozen_string_literal: true

require_relative "../../bench/support/bench"

RSpec.describe "The benchmark's refork", once: "the benchmark's programs", linux: "a subreaper (prctl(2))" do
  # The workload itself takes Rails and PostgreSQL.
  it "tells memory and latencies before it and after it, and what a successor takes" do
    workload = Bench::Workload.new("refork", title: "", app: "hello.ru", front: :tcp, servers: %w[fastrack],
                                             measurement: Bench::Measurements::Refork.new(4_500), settings: { workers: 2 })
    options = Bench::Options.new(%w[--quick])
    server, = Bench::Servers.named(%w[fastrack], [])
    figures = Bench::Trial.new(server, workload, options, Bench::Lane.new("system"), 0).run
    expect(figures.values_at("pss_mb_idle", "pss_mb_before", "pss_mb_reforked", "pss_mb_after")).to all(be > 1)
    expect([figures.count { |name, value| name.match?(/_from_|_kept/) && value.positive? }, *figures.values_at("errors", "peak_workers")]).to match([8, 0, be >= 0])
  end
end
