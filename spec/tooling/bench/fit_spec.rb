# frozen_string_literal: true

require "open3"
require "rbconfig"
require_relative "../../spec_helper"
require_relative "../../support/memory_cgroup"

# That these commands work. What they find takes minutes, and a machine that does nothing else.
RSpec.describe "workers that fit", once: "a tool" do
  def run(command, *arguments)
    output, status = Open3.capture2e(RbConfig.ruby, "-w", File.join(Server::ROOT, command), *arguments)
    expect(output).not_to match(/^#{Server::ROOT}.*warning:/)
    [status.exitstatus, output]
  end

  it "are compared by bench/leak, with a leak and without one" do
    (MemoryCgroup.make(300 << 20) or skip("no memory cgroup can be made here")).remove
    app = File.join(Server::ROOT, "bench/apps/hello.ru")
    status, output = run("bench/leak", "--seconds", "2", "--slice", "1", "--memory", "300", "--workers", "2", "--leak", "1000", "--check", app)
    expect(output).to match(/^     0 bytes leaked .* 0 failed, 0 workers recycled, 0 killed, peak \d+ MB$/)
    expect(output).to match(/^  1000 bytes leaked .* 0 failed, 0 workers recycled, 0 killed, peak \d+ MB$/)
    expect(output).to match(/^throughput with the leak: \d\.\d{3} of that without; per second of CPU: \d\.\d{3}$/)
    expect([status, output]).to match([1, /^missed: no worker was recycled, so that nothing was tried: --seconds$/])
  end

  it "are counted by bench/auto, by hand and by themselves" do
    status, output = run("bench/auto", "--apps", "wait", "--most", "2", "--rounds", "1", "--seconds", "0.3", "--clients", "2", "--settle", "1")
    expect([status, output]).to match([0, /\Await: [12] by hand, \d+ by auto\n  requests\/s: 1: \d+, 2: \d+\n/])
    expect(run("bench/auto", "--apps", "mars")).to eq([1, "bench/auto: no app mars; there are: hello, sinatra, rails, wait\n"])
  end
end
