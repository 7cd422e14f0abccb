# frozen_string_literal: true

require_relative "../spec_helper"
require "open3"
require "tmpdir"

# How bin/test runs lanes at the same time.
RSpec.describe "bin/lib/side_by_side.sh", :once do
  around do |example|
    Dir.mktmpdir("fastrack-lanes") do |dir|
      @dir = dir
      example.run
    end
  end

  # A script that has lanes of this body, where $1 is the lane's name.
  def script(body, *lanes)
    file = File.join(@dir, "lanes.sh")
    File.write(file, <<~BASH)
      set -uo pipefail
      logs=#{@dir}
      . #{File.join(Server::ROOT, "bin/lib/side_by_side.sh")}
      run_lane() { #{body}; }
      side_by_side #{lanes.join(" ")}
    BASH
    ["bash", file]
  end

  def statuses(*lanes)
    lanes.map { |lane| File.read(File.join(@dir, "#{lane}.status")).to_i }
  end

  it "runs lanes at once, keeps apart what they print, and knows each one's status" do
    # Each waits for the other through a pipe: one after the other they would never end.
    File.mkfifo(File.join(@dir, "pipe"))
    body = %[case $1 in a) echo from-a; read -r line <#{@dir}/pipe; return 3 ;; b) echo from-b >&2; echo >#{@dir}/pipe ;; esac]
    output, = Open3.capture2e(*script(body, "a", "b"))
    expect(statuses("a", "b")).to eq([3, 0])
    expect(output.lines.map(&:chomp)).to include("a | from-a", "b | from-b")
    expect(File.read(File.join(@dir, "a.log"))).to eq("from-a\n")
    expect(File.read(File.join(@dir, "b.log"))).to eq("from-b\n")
  end

  it "prints what a lane that is alone prints as it is" do
    output, = Open3.capture2e(*script("echo alone", "a"))
    expect(output).to eq("\n==== lane a\nalone\n")
  end

  %w[INT TERM].each do |signal|
    it "ends the lanes with it at #{signal}" do
      body = 'echo started $BASHPID; exec sleep 600'
      IO.popen(script(body, "a", "b"), err: %i[child out]) do |script|
        seen = +""
        seen << script.readpartial(4096) until seen.scan(/started \d+\n/).size == 2
        Process.kill(signal, script.pid)
        Process.wait(script.pid)
        expect($?.exitstatus).to eq(signal == "INT" ? 130 : 143)
        # What they started is not the script's child, and ends after it.
        lanes = seen.scan(/started (\d+)/).flatten.map(&:to_i)
        eventually { lanes.none? { |pid| ProcessTable.alive?(pid) } }
      end
    end
  end
end
