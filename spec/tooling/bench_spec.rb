# frozen_string_literal: true

require "json"
require "open3"
require "rbconfig"
require "rexml/document"
require "stringio"
require "tmpdir"
require_relative "../spec_helper"
require_relative "../../bench/support/bench"

RSpec.describe Bench, once: "a tool" do
  describe Bench::Statistics do
    it "takes the middle of an odd number, the mean of the middle two of an even one, and leaves gaps out" do
      expect(described_class.median([9, 1, 5])).to eq(5)
      expect(described_class.median([1, 9, 3, 5])).to eq(4.0)
      expect(described_class.median([nil, 2, nil])).to eq(2)
      expect(described_class.median([nil])).to be_nil
    end

    it "gives the median of each measurement, and all errors" do
      rounds = [{ "rps" => 100.0, "errors" => 1 }, nil, { "rps" => 300.0, "errors" => 2 }]
      expect(described_class.medians(rounds)).to eq("rps" => 200.0, "errors" => 3)
    end

    it "compares within each round, so that a slow round does not count for one server only" do
      mine = [10.0, 40.0, 12.0].map { |us| { "cpu_us" => us, "errors" => 0 } }
      other = [20.0, 80.0, 60.0].map { |us| { "cpu_us" => us, "errors" => 0 } }
      # The ratio of the medians would be 12 / 60 = 0.2.
      expect(described_class.ratios(mine, other)).to eq("cpu_us" => 0.5)
    end

    it "leaves out rounds in which one of the two has nothing to compare" do
      mine = [{ "rps" => 50.0 }, nil, { "rps" => 90.0 }]
      other = [{ "rps" => 100.0 }, { "rps" => 100.0 }, { "rps" => 0.0 }]
      expect(described_class.ratios(mine, other)).to eq("rps" => 0.5)
    end
  end

  describe Bench::Measurements::Load do
    it "divides CPU time by the requests done" do
      load = { requests: 2_000, in_time: 2_000, duration_us: 4_000_000, clients: 8, served_every_second: 7,
               longest_gap_us: 1_500_000, p50_us: 1_500, p95_us: 2_000, p99_us: 3_250, max_us: 9_000,
               errors: { connect: 1, read: 0, write: 0, status: 2, timeout: 0 } }
      expect(described_class.result(50_000_000, load)).to include(
        "requests" => 2_000, "seconds" => 4.0, "rps" => 500.0, "cpu_us" => 25.0, "p50_ms" => 1.5, "p99_ms" => 3.25,
        "errors" => 3, "clients" => 8, "clients_served" => 7, "longest_gap_ms" => 1_500.0
      )
    end

    it "counts for requests per second what was answered while the server was asked, not what came later" do
      load = { requests: 2_000, in_time: 1_000, duration_us: 4_000_000, clients: 1, served_every_second: 1, longest_gap_us: 1,
               p50_us: 1, p95_us: 1, p99_us: 1, max_us: 1, errors: {} }
      expect(described_class.result(50_000_000, load)).to include("rps" => 250.0, "cpu_us" => 25.0)
    end

    it "has no CPU per request when no request was done" do
      load = { requests: 0, in_time: 0, duration_us: 1, clients: 1, served_every_second: 0, longest_gap_us: 1,
               p50_us: 0, p95_us: 0, p99_us: 0, max_us: 0, errors: { timeout: 4 } }
      expect(described_class.result(1, load)).to include("cpu_us" => nil, "errors" => 4)
    end
  end

  describe Bench::ProcessTree do
    # Runs a Ruby script that prints a line when it is in the state to be looked at, and ends with its stdin.
    def with_script(text)
      Open3.popen2(RbConfig.ruby, "-e", text) do |stdin, stdout, waiter|
        yield described_class.new([waiter.pid]), stdout.gets, waiter.pid
      ensure
        stdin.close
        waiter.value
      end
    end

    let(:burn) { <<~RUBY }
      def cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
      def burn(seconds)
        till = cpu + seconds
        nil while cpu < till
      end
    RUBY

    it "counts living children, ended threads and reaped children" do
      script = <<~RUBY
        #{burn}
        Thread.new { burn(0.12) }.join
        Process.wait(fork { burn(0.2) })
        reader, writer = IO.pipe
        fork do
          burn(0.3)
          writer.puts cpu
          $stdin.read
        end
        child = reader.gets.to_f
        puts cpu + child + Process.times.cutime + Process.times.cstime
        $stdout.flush
        $stdin.read
        Process.wait
      RUBY
      with_script(script) do |tree, said, pid|
        expect(tree.pids.size).to eq(2)
        expect(tree.pids.first).to eq(pid)
        # Reaped children are known in ticks of 10 ms; printing costs a little more.
        expect(tree.cpu_ns / 1e9).to be_within(0.03).of(said.to_f)
        expect(tree.cpu_ns / 1e9).to be > 0.62
        expect(tree.cpu_ticks_ns).to be_within(60_000_000).of(tree.cpu_ns)
      end
    end

    it "counts pages that processes share once" do
      script = <<~RUBY
        kept = "x" * 32_000_000
        2.times { fork { $stdin.read } }
        puts kept.bytesize
        $stdout.flush
        $stdin.read
        Process.waitall
      RUBY
      with_script(script) do |tree, said, _pid|
        Eventually.eventually { tree.pids.size == 3 }
        expect(tree.pss_bytes).to be_between(said.to_i, 2 * said.to_i)
      end
    end

    it "knows nothing of processes that are gone" do
      pid = Process.spawn("true")
      Process.wait(pid)
      tree = described_class.new([pid])
      expect([tree.pids, tree.cpu_ns, tree.pss_bytes]).to eq([[], 0, 0])
    end
  end

  describe Bench::Options do
    it "refuses what cannot be run" do
      expect { described_class.new(%w[--rounds none]) }.to raise_error(described_class::Invalid, /--rounds none/)
      expect { described_class.new(%w[--workers 0]) }.to raise_error(described_class::Invalid, /--workers 0/)
      expect { described_class.new(%w[--lane mars]) }.to raise_error(described_class::Invalid, /mars/)
      expect { described_class.new(%w[extra]) }.to raise_error(described_class::Invalid, /extra/)
    end

    it "prefers the command line to the workload, and the workload to the rest" do
      memory = Bench::Workloads.named(["memory"]).first
      expect(memory.setting(:workers, described_class.new([]))).to eq(4)
      expect(memory.setting(:workers, described_class.new(%w[--workers 3]))).to eq(3)
      expect(memory.setting(:concurrency, described_class.new(%w[--quick]))).to eq(32)
    end

    it "lets --rounds and --seconds stand beside --quick, in any order" do
      options = described_class.new(%w[--rounds 3 --quick])
      expect([options.common(:rounds), options.common(:seconds)]).to eq([3, 0.3])
    end
  end

  describe Bench::Servers do
    let(:workload) { Bench::Workloads.named(["hello-tcp"]).first }
    let(:site) { Bench::Site.new(dir: "/nowhere", workload: workload, workers: 3, lane: Bench::Lane.new("system")) }

    it "puts port, app and workers into a command" do
      command = described_class.named(["mine"], [["mine", "serve -p {port} -w {workers} '{ru}'"]]).first
      words = ["serve", "-p", site.endpoint.port.to_s, "-w", "3", workload.app.path]
      expect(command.commands(site)).to eq([words])
    end

    it "leaves workloads behind nginx to a command with a socket" do
      commands = [["mine", "serve {port}"], ["both", "serve {port}"], ["both", "serve {socket}"]]
      behind = Bench::Workloads.named(["hello-nginx"]).first
      serving = described_class.named(%w[mine both], commands).map { |server| server.serves?(behind) }
      expect(serving).to eq([false, true])
    end

    it "refuses a command that says nowhere to listen, and a name that is none" do
      expect { described_class.named(["mine"], [%w[mine serve]]) }.to raise_error(Bench::Options::Invalid, /\{port\}/)
      expect { described_class.named(["nobody"], []) }.to raise_error(Bench::Options::Invalid, /nobody/)
    end
  end

  describe Bench::Targets do
    def server(name, cpu_us, rps)
      { "name" => name, "failed" => 0, "rounds" => [{ "cpu_us" => cpu_us, "rps" => rps, "errors" => 0 }],
        "medians" => { "errors" => 0, "clients" => 4, "clients_served" => 4 } }
    end

    def results(fastrack_us, lane: "system", rounds: 5)
      servers = [server("limit", 10.0, 900.0), server("unicorn", 20.0, 500.0), server("fastrack", fastrack_us, 600.0)]
      servers.each do |one|
        one["ratios"] = servers.first(2).to_h do |other|
          [other["name"], Bench::Statistics.ratios(one["rounds"], other["rounds"])]
        end
      end
      workload = { "name" => "hello-nginx", "title" => "Hello", "kind" => "load", "workers" => 2, "concurrency" => 4,
                   "servers" => servers }
      { "format" => Bench::Campaign::FORMAT, "started" => "now", "quick" => false, "lane" => lane, "machine" => {},
        "versions" => { "ruby" => "ruby" }, "rounds" => rounds, "seconds" => 1.0, "workloads" => [workload] }
    end

    def missed(results)
      described_class.check(results).reject(&:reached?).map(&:subject)
    end

    it "is content at the targets, and not beyond them" do
      expect(missed(results(11.0))).to eq([])
      expect(missed(results(11.1))).to eq(["CPU per request, to limit's", "CPU per request, to unicorn's"])
    end

    it "wants five rounds, no errors, and no server that serves more" do
      expect(missed(results(11.0, rounds: 4))).to eq(["rounds"])
      slower = results(11.0)
      fastrack = slower["workloads"].first["servers"].last
      fastrack["rounds"].first["rps"] = 499.0
      fastrack["medians"]["errors"] = 1
      expect(missed(slower)).to eq(["requests/s, to unicorn's", "errors and failed rounds"])
    end

    it "misses what was not measured" do
      without = results(11.0)
      without["workloads"].first["servers"].last["ratios"].delete("unicorn")
      expect(missed(without)).to eq(["CPU per request, to unicorn's"])
    end

    it "compares what a file costs with what it costs nginx" do
      verdicts = [1.5, 1.51].map do |ratio|
        servers = [{ "name" => "fastrack", "failed" => 0, "medians" => { "errors" => 0, "clients" => 4, "clients_served" => 4 }, "ratios" => { "nginx" => { "cpu_us" => ratio } } }]
        missed("lane" => "rack3", "quick" => false, "rounds" => 5, "workloads" => [{ "name" => "file", "kind" => "load", "servers" => servers }])
      end
      expect(verdicts).to eq([[], ["CPU per request, to nginx's"]])
    end

    it "compares memory with unicorn's and with what it was before" do
      readings = { "fastrack" => [30.0, 30.2, 31.0], "unicorn" => [30.0, 30.1, 30.1] }
      names = %w[pss_mb_after_2000 pss_mb_after_50000 pss_mb_after_100000]
      servers = readings.map do |name, values|
        round = names.zip(values).to_h.merge("errors" => 0, "clients" => 4, "clients_served" => 4)
        { "name" => name, "failed" => 0, "rounds" => [round], "medians" => round }
      end
      servers.each { |one| one["ratios"] = { "unicorn" => Bench::Statistics.ratios(one["rounds"], servers.last["rounds"]) } }
      workload = { "name" => "memory", "kind" => "memory", "servers" => servers }
      expect(missed("lane" => "rack3", "quick" => false, "rounds" => 5, "workloads" => [workload])).to eq(
        ["PSS after 50000 requests, to unicorn's", "PSS after 100000 requests, to that after 50000"]
      )
    end

    it "makes bench/run --check exit 1 when one is missed, and 0 when none is" do
      Dir.mktmpdir do |dir|
        statuses = [11.0, 12.0].map do |cpu_us|
          file = File.join(dir, "earlier.json")
          File.write(file, JSON.generate(results(cpu_us)))
          Bench::CommandLine.new(["--from", file, "--out", dir, "--check"], out: StringIO.new, log: StringIO.new).run
        end
        expect(statuses).to eq([0, 1])
      end
    end
  end

  describe "bench/run --quick" do
    let(:workloads) { %w[hello-nginx hello-tcp post64k memory] }
    let(:servers) { %w[limit fastrack] + (Gem::Specification.find_all_by_name("unicorn").empty? ? [] : ["unicorn"]) }

    def run(dir)
      command = [RbConfig.ruby, "-w", File.join(Server::ROOT, "bench/run"), "--quick", "--out", dir,
                 "--workload", workloads.join(","), "--server", servers.join(",")]
      output, status = Open3.capture2e(*command)
      raise "bench/run: #{status}\n#{output}" unless status.success?

      expect(output).not_to include("warning:")
      %w[json md svg].map { |ending| File.read(File.join(dir, "system.#{ending}"), encoding: "UTF-8") }
    end

    before do
      missing = Bench::Programs.missing(Bench::Workloads.named(workloads))
      skip "not installed: #{missing.join(", ")}" unless missing.empty?
    end

    it "measures every server and reports in three forms" do
      json, markdown, svg = Dir.mktmpdir { |dir| run(dir) }
      results = JSON.parse(json)
      expect(results).to include("quick" => true, "lane" => "system", "rounds" => 1)
      expect(results["versions"]["ruby"]).to start_with("ruby #{RUBY_VERSION}")
      expect(results["workloads"].map { |workload| workload["name"] }).to eq(workloads)
      results["workloads"].each { |workload| expect_measured(workload) }
      workloads.each { |name| expect(markdown).to include("(`#{name}`)") }
      expect(REXML::Document.new(svg).root.get_elements("text").map(&:text)).to include("fastrack")
    end

    context "with files" do
      let(:workloads) { %w[file] }
      let(:servers) { %w[nginx fastrack] }

      it "measures nginx beside Fastrack" do
        json, markdown, = Dir.mktmpdir { |dir| run(dir) }
        nginx, fastrack = JSON.parse(json).dig("workloads", 0, "servers")
        expect([nginx, fastrack].map { |server| server["name"] }).to eq(%w[nginx fastrack])
        expect([nginx, fastrack].flat_map { |server| server["medians"].values_at("requests", "cpu_us") }).to all(be > 0)
        expect([nginx, fastrack].sum { |server| server["medians"]["errors"] + server["failed"] }).to eq(0)
        expect(fastrack.dig("ratios", "nginx", "cpu_us")).to be > 0
        expect(markdown).to include("CPU to nginx")
      end
    end

    def expect_measured(workload)
      memory = workload["kind"] == "memory"
      expect(workload["servers"].map { |server| server["name"] }).to eq(memory ? servers - ["limit"] : servers)
      names = memory ? %w[pss_mb_after_2000 pss_mb_after_50000 pss_mb_after_100000] : %w[requests rps cpu_us p50_ms p95_ms p99_ms]
      workload["servers"].each do |server|
        expect(server["medians"].values_at(*names)).to all(be > 0)
        expect(server["medians"]["errors"]).to eq(0)
        expect(server["rounds"].size).to eq(1)
        expect(server["ratios"].dig("limit", "cpu_us")).to be > 0 unless memory
      end
    end
  end
end
