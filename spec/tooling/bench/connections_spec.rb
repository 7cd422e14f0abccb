# frozen_string_literal: true

require "json"
require "open3"
require "rbconfig"
require "tmpdir"
require_relative "../../spec_helper"
require_relative "../../../bench/support/bench"

RSpec.describe "the benchmark of connections", once: "a tool" do
  describe Bench::Statistics do
    it "takes the nearest rank for a percentile" do
      hundred = (1..100).to_a
      expect([50, 95, 99, 100].map { |percent| described_class.percentile(hundred, percent) }).to eq([50, 95, 99, 100])
      expect([described_class.percentile([7], 1), described_class.percentile([1, 2, 3], 50)]).to eq([7, 2])
      expect(described_class.percentile([], 50)).to be_nil
    end
  end

  describe Bench::Measurements::Load do
    it "says what share of the work the less busy worker has done" do
      expect(described_class.least_share([30, 50, 20])).to eq(0.2)
      expect(described_class.least_share([0, 10])).to eq(0.0)
      expect([described_class.least_share([0, 0]), described_class.least_share([])]).to eq([nil, nil])
    end
  end

  describe Bench::ProcessTree do
    it "tells workers from their master" do
      script = "2.times { fork { $stdin.read } }; puts Process.pid; $stdout.flush; $stdin.read; Process.waitall"
      Open3.popen2(RbConfig.ruby, "-e", script) do |stdin, stdout, waiter|
        tree = described_class.new([waiter.pid])
        expect(stdout.gets.to_i).to eq(waiter.pid)
        expect(tree.leaves_ns.keys).to match_array(tree.pids - [waiter.pid])
        expect(tree.leaves_ns.values).to all(be > 0)
        expect(tree.leaves_ns.size).to eq(2)
        stdin.close
      end
    end
  end

  describe Bench::Measurements::Mix do
    it "gives the simulation the pauses and service times that were measured, in milliseconds" do
      samples = Array.new(50) { Bench::ClosedLoop::Sample.new("/fast", 0, 99_000, 2_000) }
      samples << Bench::ClosedLoop::Sample.new("/fast", 0, 99_000, nil)
      # Four clients of two servers: one service time of waiting, one of service.
      expect(described_class.ideal(samples, servers: 2, clients: 4)).to eq(
        "ideal_p50_ms" => 4.0, "ideal_p95_ms" => 4.0, "ideal_p99_ms" => 4.0
      )
      expect(described_class.ideal([], servers: 2, clients: 4)).to eq({})
    end
  end

  describe Bench::Workloads do
    it "knows names that stand for several workloads" do
      expect(described_class.named(%w[connections idle]).map(&:name)).to include("keepalive", "mix-sleep", "slow", "idle")
      expect(described_class.named(%w[connections idle])).to eq(described_class::CONNECTIONS)
      expect(described_class.named([])).to eq(described_class.named(%w[requests connections]))
      expect(described_class.named(%w[collections]).map(&:name)).to include("gc-heap", "gc-heap-30")
    end
  end

  describe Bench::ConnectionTargets do
    def server(name, measured)
      { "name" => name, "failed" => 0, "rounds" => [measured], "medians" => measured.merge("errors" => 0), "ratios" => {} }
    end

    def missed(name, kind, *servers)
      described_class.check("name" => name, "kind" => kind, "servers" => servers).reject(&:reached?).map(&:subject)
    end

    it "wants a kept-alive hello that costs little, is served fast, and by both workers" do
      reached = server("fastrack", "least_share" => 0.34)
      reached["ratios"] = { "limit" => { "cpu_us" => 1.35 }, "puma" => { "rps" => 3.5 } }
      expect(missed("keepalive", "keepalive", reached)).to eq([])
      not_reached = server("fastrack", "least_share" => 0.33)
      not_reached["ratios"] = { "limit" => { "cpu_us" => 1.36 }, "puma" => { "rps" => 3.49 } }
      expect(missed("keepalive", "keepalive", not_reached)).to eq(
        ["share of the less busy worker", "CPU per request, to limit's", "requests/s, to puma's"]
      )
      expect(missed("browser-keepalive", "keepalive", reached)).to eq([])
      reached["ratios"]["limit"]["cpu_us"] = 2.21
      expect(missed("browser-keepalive", "keepalive", reached)).to eq(["CPU per request, to limit's"])
    end

    it "wants latencies near the ideal, and below every other server's" do
      own = server("fastrack", "p95_to_ideal" => 1.10, "p99_to_ideal" => 1.11, "p95_ms" => 60.0, "p99_ms" => 90.0)
      pinned = server("fastrack-pinned", "p95_ms" => 82.0, "p99_ms" => 89.0)
      unicorn = server("unicorn", "p95_ms" => 59.0, "p99_ms" => 92.0)
      expect(missed("mix-burn", "mix", own, pinned, unicorn)).to eq(
        ["p99, to that of an ideal single queue", "p99, to fastrack-pinned's", "p95, to unicorn's"]
      )
    end

    it "wants the same of several threads, beside Puma's" do
      own = server("fastrack-threads", "p95_to_ideal" => 1.10, "p99_to_ideal" => 1.11, "p95_ms" => 60.0, "p99_ms" => 90.0)
      own["ratios"] = { "puma-threads" => { "rps" => 0.99 } }
      puma = server("puma-threads", "p95_ms" => 59.0, "p99_ms" => 92.0)
      alone = server("fastrack", "p95_ms" => 1.0, "p99_ms" => 1.0)
      expect(missed("threads-sleep", "mix-threads", own, alone, puma)).to eq(
        ["p99, to that of an ideal single queue", "requests/s, to puma-threads's", "p95, to puma-threads's"]
      )
    end

    it "wants slow and idle clients to cost the others nothing" do
      slow = { "rps_kept" => 0.95, "max_beside_ms" => 100.0 }
      expect(missed("slow", "slow", server("fastrack", slow))).to eq([])
      expect(missed("slow", "slow", server("fastrack", slow.merge("rps_kept" => 0.94)))).to eq(
        ["requests/s beside slow clients, to those without"]
      )
      idle = { "still_open" => 10_000, "bytes_each" => 4_096.0, "idle_cpu_us" => 100.0, "p99_kept" => 1.1 }
      expect(missed("idle", "idle", server("fastrack", idle))).to eq([])
      beyond = { "still_open" => 9_999, "bytes_each" => 4_097.0, "idle_cpu_us" => 101.0, "p99_kept" => 1.11 }
      expect(missed("idle", "idle", server("fastrack", beyond)).size).to eq(4)
    end

    it "misses what was not measured" do
      expect(missed("idle", "idle", server("fastrack", "bytes_each" => nil)).size).to eq(4)
      expect(missed("slow", "slow", server("puma", "rps_kept" => 1.0)).size).to eq(2)
    end
  end

  describe "bench/run --quick" do
    # What each kind of measurement must have found of a server that works, whether or not it keeps connections.
    let(:found) do
      {
        "keepalive" => %w[rps cpu_us], "mix-burn" => %w[rps p99_ms ideal_p99_ms p99_to_ideal service_slow_ms],
        "threads-sleep" => %w[rps p99_ms ideal_p99_ms p99_to_ideal service_slow_ms],
        "mix-burn-new" => %w[rps p50_kept_ms p50_new_ms p95_kept_ms p95_new_ms p99_new_ms p50_new_to_kept p99_new_to_kept ideal_p99_ms],
        "newcomer" => %w[rps p50_kept_ms p50_new_ms longest_new_ms longest_new_to_kept newcomer_requests],
        "slow" => %w[rps_alone rps_beside rps_kept max_beside_ms], "idle" => %w[possible p99_alone_ms p99_beside_ms p99_kept]
      }
    end

    before do
      missing = Bench::Programs.missing(Bench::Workloads.named(found.keys))
      skip "not installed: #{missing.join(", ")}" unless missing.empty?
    end

    it "measures each of them and reports it" do
      Dir.mktmpdir do |dir|
        command = [RbConfig.ruby, "-w", File.join(Server::ROOT, "bench/run"), "--quick", "--seconds", "1", "--out", dir,
                   "--workload", found.keys.join(","), "--server", "limit,fastrack"]
        output, status = Open3.capture2e(*command)
        raise "bench/run: #{status}\n#{output}" unless status.success?

        expect(output).not_to include("warning:")
        workloads = JSON.parse(File.read(File.join(dir, "system.json")))["workloads"]
        expect(workloads.map { |workload| workload["name"] }).to eq(found.keys)
        workloads.each { |workload| expect_found(workload) }
        expect(File.read(File.join(dir, "system.md"), encoding: "UTF-8")).to include("p99 to ideal", "bytes each", "kept",
                                                                                             "clients served every second")
        expect(File.read(File.join(dir, "system.svg"), encoding: "UTF-8")).to include("user-space memory of each")
      end
    end

    def expect_found(workload)
      own = workload["servers"].find { |server| server["name"] == "fastrack" }
      expect(own["medians"].values_at(*found.fetch(workload["name"]))).to all(be > 0)
      expect(own["medians"]["errors"]).to eq(0)
      expect(own["medians"]).to include("clients" => be > 0, "clients_served" => own["medians"]["clients"], "longest_gap_ms" => be > 0)
      expect(own["medians"]["least_share"]).to be_between(0, 0.5) if workload["kind"] == "keepalive"
    end
  end
end
