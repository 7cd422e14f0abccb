# frozen_string_literal: true

require "json"
require "open3"
require "stringio"
require "tmpdir"
require_relative "../../spec_helper"
require_relative "../../../bench/support/bench"

RSpec.describe Bench::Measurements::Collections, once: "a tool" do
  it "tells how many requests had a collection, beside those without OobGC" do
    Dir.mktmpdir do |dir|
      command = [RbConfig.ruby, "-w", File.join(Server::ROOT, "bench/run"), "--quick", "--seconds", "1", "--out", dir,
                 "--workload", "gc-heap", "--server", "fastrack,fastrack-oobgc-auto"]
      output, status = Open3.capture2e(*command)
      raise "bench/run: #{status}\n#{output}" unless status.success?

      expect(output).not_to include("warning:")
      servers = JSON.parse(File.read(File.join(dir, "system.json")))["workloads"].first["servers"]
      figures = servers.to_h { |server| [server["name"], server["medians"]] }
      expect(figures.keys).to eq(%w[fastrack fastrack-oobgc-auto])
      expect(figures["fastrack"]).to include("errors" => 0, "gc_share" => be > 0, "gc_in_us" => be > 0, "p999_ms" => be > 0)
      expect(servers.last["ratios"]["fastrack"]).to include("p99_ms", "p999_ms", "cpu_us", "rps")
    end
  end

  it "makes the load that its name says in each round, whatever the app takes then" do
    options = Bench::Options.new(%w[--workload gc-heap-30 --server fastrack --rounds 2])
    allow(Bench::AppAlone).to receive(:measure).and_return({ "app_us" => 2_000.0 }, { "app_us" => 3_000.0 })
    pauses = []
    allow(Bench::Trial).to receive(:new) do |_, workload, *|
      pauses << workload.think_ms
      double(run: { "errors" => 0 })
    end
    results = Bench::Campaign.new(options, log: StringIO.new).run
    expect([pauses, results["workloads"].first["pause_ms"]]).to eq([[62.6, 93.9]] * 2)
  end

  it "has what they take of requests and could be spared told by bench/collections" do
    command = [RbConfig.ruby, "-w", File.join(Server::ROOT, "bench/collections"), "--requests", "300", "--warm-up", "30"]
    output, status = Open3.capture2e(*command)
    expect(output).not_to match(/^#{Server::ROOT}.*warning:/)
    service, gc, sweeping = output[/^ruby \S+: (.*)/, 1].scan(/[\d.]+(?= ms| us)/).map(&:to_f)
    expect(service * 1000).to be > gc
    expect(gc).to be > sweeping
    shares = output.scan(/^  without (?:marks|GC): ([\d.]+), ([\d.]+)$/).flatten.map(&:to_f)
    expect(shares).to all(be_between(0.01, 1.2)) & satisfy { |all| all.size == 12 }
    expect(status).to be_success
  end

  # Figures of a run: OobGC=auto's, to those without.
  def verdicts(name, ratios)
    servers = [{ "name" => "fastrack" }, { "name" => "fastrack-oobgc-auto", "ratios" => { "fastrack" => ratios } }].map do |server|
      { "medians" => { "errors" => 0, "clients" => 16, "clients_served" => 16 }, "failed" => 0, "rounds" => [], "ratios" => {} }.merge(server)
    end
    workload = { "name" => name, "kind" => "gc-heap", "servers" => servers }
    Bench::Targets.check("lane" => "rack3", "rounds" => 5, "quick" => false, "workloads" => [workload]).to_h { |one| [one.subject, one.reached?] }
  end

  it "has targets for OobGC=auto: lower tails for little CPU time, and nothing lost where clients always wait" do
    good = { "p99_ms" => 0.75, "p999_ms" => 0.7, "cpu_us" => 1.05, "rps" => 0.98 }
    words = ["p99, to fastrack's", "p99.9, to fastrack's", "CPU per request, to fastrack's"]
    expect(verdicts("gc-heap-30", good)).to include(words.to_h { |one| [one, true] })
    expect(verdicts("gc-heap-70", good.transform_values { |value| value + 0.1 })).to include(words.to_h { |one| [one, false] })
    expect(verdicts("gc-heap", good)).to include("requests/s, to fastrack's" => true)
    expect(verdicts("gc-heap", good.merge("rps" => 0.97))).to include("requests/s, to fastrack's" => false)
  end
end
