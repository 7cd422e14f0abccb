# frozen_string_literal: true

require_relative "../spec_helper"
require "open3"
require "tmpdir"

# What bin/test does about a few examples that fail while the machine is busy.
RSpec.describe "bin/lib/again.sh", :once do
  around do |example|
    Dir.mktmpdir("fastrack-again") do |dir|
      @dir = dir
      example.run
    end
  end

  SUMMARY = <<~'TEXT'
    Failed examples:

    rspec ./spec/master_spec.rb:42 # Master workers A9 SpawnInterval
    rspec './spec/deploys_spec.rb[1:2]' # Many deploys A8 20 by start_server
  TEXT

  # @return [Array(Boolean, String)] whether the lane passed after all, and the arguments of the second run
  def again(log, second_run: "true")
    File.write(File.join(@dir, "a.log"), log)
    File.write(File.join(@dir, "a.status"), "1 60\n")
    output, status = Open3.capture2e("bash", "-c", <<~BASH)
      set -uo pipefail
      logs=#{@dir}
      . #{File.join(Server::ROOT, "bin/lib/again.sh")}
      run_examples() { echo "again: $*"; #{second_run}; }
      passes_again a
    BASH
    [status.success?, output[/^again: (.*)$/, 1]]
  end

  def status
    File.read(File.join(@dir, "a.status"))
  end

  it "runs examples that failed once more, and names as flaky those that pass then" do
    expect(again(SUMMARY)).to eq([true, "a ./spec/deploys_spec.rb[1:2] ./spec/master_spec.rb:42"])
    expect(status).to eq("0 60\n")
    expect(File.readlines(File.join(@dir, "a.flaky"), chomp: true)).to eq(%w[./spec/deploys_spec.rb[1:2] ./spec/master_spec.rb:42])
  end

  it "leaves a lane failed whose examples fail again" do
    expect(again(SUMMARY, second_run: "false").first).to be(false)
    expect(status).to eq("1 60\n")
  end

  {
    "whose examples were not the reason" => "#{SUMMARY}specs.sh: Ruby warned about the project's own code:\n",
    "that could not load a file" => "#{SUMMARY}0 examples, 0 failures, 1 error occurred outside of examples\n",
    "where many examples failed" => Array.new(5) { |index| "rspec ./spec/a_spec.rb:#{index} # a\n" }.join,
    "of which nothing is known" => "killed\n"
  }.each do |what, log|
    it "leaves a lane failed #{what}" do
      expect(again(log)).to eq([false, nil])
      expect(status).to eq("1 60\n")
    end
  end
end
