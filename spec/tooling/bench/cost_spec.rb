# frozen_string_literal: true

require "json"
require "open3"
require "rbconfig"
require "tmpdir"
require_relative "../../spec_helper"
require_relative "../../../bench/support/instructions"
require_relative "../../../bench/support/monitor_targets"

# What bench/instructions and bench/monitor find takes minutes. That they fail where a target is missed is seen by given figures.
RSpec.describe "The cost of a request and of the monitor", once: "a tool" do
  def check(command, figures)
    Dir.mktmpdir do |dir|
      File.write(file = File.join(dir, "figures.json"), JSON.generate(figures))
      output, status = Open3.capture2e(RbConfig.ruby, "-w", File.join(Server::ROOT, command), "--check", "--from", file)
      [status.exitstatus, output.lines.grep(/^MISSED/).map { |line| line[/: (.+) (?:\d+\.\d{3}|not measured) \(/, 1] }, output]
    end
  end

  describe "by bench/instructions --check" do
    published = Bench::InstructionTargets.published
    # Each at its limit.
    within = published.dig("lanes", "system").then do |before|
      {
        "uncounted" => 2_700, "pipelined" => 2_800, "combined" => 3_559, "json" => 3_559, "worker" => 10_000, "worker with monitor" => 10_026,
        "kept" => before["kept"] * 1.0099, "tcp" => before["tcp"] * 1.0099, "kept, five threads" => before["kept"] * 1.0499
      }
    end

    it "reaches its targets at their limits" do
      expect(check("bench/instructions", within)).to match([0, [], /^reached .*hello-tcp/])
    end

    {
      "worker with monitor" => [1.0001, "monitor, metrics and queue time, share of a request"], "pipelined" => [1.01, "monitor, metrics and queue time, share of a request"],
      "combined" => [1.001, "access log, combined, share of a request"], "json" => [1.001, "access log, JSON, share of a request"],
      "kept" => [1.001, "hello kept, to what is published"], "tcp" => [1.001, "hello-tcp, to what is published"],
      "kept, five threads" => [1.001, "hello kept with MaxThreads 5, to what is published with 1"]
    }.each do |name, (factor, target)|
      it "misses one where '#{name}' is beyond it" do
        expect(check("bench/instructions", within.merge(name => within[name] * factor))).to match([1, [target], anything])
      end
    end

    it "misses what was not measured" do
      expect(check("bench/instructions", within.except("tcp"))).to match([1, ["hello-tcp, to what is published"], /not measured/])
    end

    it "compares with an earlier version that was counted in the same run, instead of what is published" do
      before = { "kept, before" => within["kept"] / 1.02, "tcp, before" => within["tcp"] }
      expect(check("bench/instructions", within.merge(before))).to match([1, ["hello kept, to what is published", /MaxThreads 5/], anything])
    end

    it "says so where there is no such version" do
      output, status = Open3.capture2e(RbConfig.ruby, "-w", File.join(Server::ROOT, "bench/instructions"), "--against", "/nowhere")
      expect([status.exitstatus, output]).to eq([1, "bench/instructions: --against /nowhere: no checkout of Fastrack\n"])
    end

    it "compares with the lane's own figures" do
      verdicts = Bench::InstructionTargets.check(within, { "request" => 12_660, "lanes" => { "rack3" => { "kept" => 1, "tcp" => 1 } } }, "rack3")
      expect(verdicts.reject(&:reached?).size).to eq(3)
    end
  end

  describe "by bench/monitor --check" do
    within = { "pss_kb" => 4096, "cpu_percent" => 0.1, "elsewhere" => [10, 12, 11], "crowded" => [12, 13, 12.5] }

    it "reaches its targets at their limits" do
      expect(check("bench/monitor", within)).to match([0, [], /^reached .*p99/])
    end

    {
      "PSS, MB" => { "pss_kb" => 4140 }, "CPU while scraped each second, % of a core" => { "cpu_percent" => 0.11 },
      "p99 of hello beside 1,000 control clients, to that beside 1,000 elsewhere" => { "crowded" => [20, 21, 22] }
    }.each do |target, figures|
      it "misses one where this is beyond it: #{target}" do
        expect(check("bench/monitor", within.merge(figures))).to match([1, [target], anything])
      end
    end
  end
end
