# frozen_string_literal: true

require "json"
require "open3"
require_relative "../../bench/support/bench"

# That each program of bench/ still runs, and that the arithmetic is right. How good the figures are is not the question.
RSpec.describe "The benchmark", once: "the benchmark's programs" do
  number = /\d[\d,.]*/
  # What each is told to be over soon, and the figures that it has to print. The lines are those of its report, in that order.
  programs = {
    # Its verdict is about seconds, too, which a busy machine may miss: 1 is as good as 0.
    "soak" => [%w[--seconds 0.5 --seed 2 --acts hup], /^verdict: (?:stood|FAILED), [1-9]\d* requests answered/, [0, 1]],
    "marks" => [[], /\Aruby .*\n(?:.+ #{number}\n){7}\z/],
    # The app is not Rails: it has next to nothing to share.
    "refork" => [%w[--lane system --threads 1 --workers 2 --before 60 --after 20,40 hello.ru], /^ +1 +refork(?: +\d+\*?){5} +0\n +1 +without(?: +\d+){5} +0\n\z/],
    "uploads" => [%w[--seconds 1 --uploads 2], /\Ap99 alone #{number} ms, beside 2 uploads #{number} ms .*, which sent \d+ MB meanwhile$/],
    "streams" => [%w[--seconds 1 --rounds 1 --streams 5 --memory 20], /\Ap99 alone #{number} ms, beside 5 streams #{number} ms: #{number} times\na stream takes #{number} KB; .*\nload: /],
    # Two hundred milliseconds of one server.
    "run" => [%w[--quick --seconds 0.2 --workload hello-tcp --server fastrack --out DIR], /^\| fastrack(?: \| #{number}){5} \| \d+ of \d+ \| /],
    # Counting takes minutes under valgrind. It judges these figures, which are no lane's.
    "instructions" => [%w[--check --from DIR/figures.json], /^\w+ +instructions: access log, combined, share of a request #{number} \(/, [1]]
  }

  it "has a smoke run of each of its programs" do
    there = Dir.children("#{Server::ROOT}/bench").select { |name| File.executable?("#{Server::ROOT}/bench/#{name}") && File.file?("#{Server::ROOT}/bench/#{name}") }
    expect(programs.keys).to match_array(there)
  end

  # Three at once, because they wait more than they compute.
  before(:context) do
    Bench::RustProgram.path("load")
    waiting = programs.keys
    @runs = {}
    Dir.mktmpdir("fastrack-bench") do |dir|
      File.write("#{dir}/figures.json", JSON.generate("pipelined" => 2_800, "combined" => 3_000))
      run = lambda do |name|
        words = programs.fetch(name).first.map { |word| word.sub("DIR", dir) }
        @runs[name] = Open3.capture2e(RbConfig.ruby, "-w", "bench/#{name}", *words, chdir: Server::ROOT)
      end
      Array.new(3) { Thread.new { nil while (name = waiting.shift) && run.call(name) } }.each(&:join)
    end
  end

  programs.each do |name, (_, figures, statuses)|
    it "has bench/#{name} print figures" do
      output, status = @runs.fetch(name)
      expect(statuses || [0]).to include(status.exitstatus), output
      expect(output).to match(figures)
      expect(output).not_to match(/^#{Server::ROOT}.*warning:/)
    end
  end

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

  # The workload refork itself takes Rails and PostgreSQL.
  it "tells memory and latencies before and after a refork, and what a successor takes", linux: "a subreaper (prctl(2))" do
    workload = Bench::Workload.new("refork", title: "", app: "hello.ru", front: :tcp, servers: %w[fastrack],
                                             measurement: Bench::Measurements::Refork.new(4_500), settings: { workers: 2 })
    options = Bench::Options.new(%w[--quick])
    server, = Bench::Servers.named(%w[fastrack])
    figures = Bench::Trial.new(server, workload, options, Bench::Lane.new("system"), 0).run
    expect(figures.values_at("pss_mb_idle", "pss_mb_before", "pss_mb_reforked", "pss_mb_after")).to all(be > 1)
    expect([figures.count { |name, value| name.match?(/_from_|_kept/) && value.positive? }, *figures.values_at("errors", "peak_workers")]).to match([8, 0, be >= 0])
  end
end
