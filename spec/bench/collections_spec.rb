# frozen_string_literal: true

require "json"
require "open3"
require "tmpdir"
require_relative "../spec_helper"
require_relative "../../bench/support/bench"

RSpec.describe Bench::Measurements::Collections do
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
end
