# frozen_string_literal: true

require "fileutils"
require "open3"
require "tmpdir"
require_relative "../spec_helper"

# What bin/test has each lane run.
RSpec.describe "bin/test", :once do
  around do |example|
    Dir.mktmpdir("fastrack-lanes") do |dir|
      @dir = dir
      FileUtils.cp_r(File.join(Server::ROOT, "bin"), dir)
      program("bin/setup", "")
      program("bin/lib/checks.sh", "echo checks >>#{dir}/said")
      program("bin/lane", "echo \"$*\" >>#{dir}/said; echo '1 example, 0 failures'")
      example.run
    end
  end

  def program(name, text)
    path = File.join(@dir, name)
    FileUtils.rm(path)
    File.write(path, "#!/bin/bash\n#{text}\n", perm: 0o755)
  end

  # @return [Array<String>] what was run, in the order of the alphabet
  def run(*arguments)
    output, status = Open3.capture2e(File.join(@dir, "bin/test"), *arguments)
    expect(status.exitstatus).to eq(0), output
    File.readlines(File.join(@dir, "said"), chomp: true).map { |line| line.sub(" bash bin/lib/specs.sh", "") }.sort
  end

  it "has examples that are tagged :once run by this machine's Ruby, and all others by each Ruby" do
    expect(run).to eq(["checks", "rack3 --tag ~once", "ruby34 --tag ~once", "system --tag once", "system --tag ~once"])
  end

  it "has each lane run what is named, once" do
    expect(run("spec/a_spec.rb")).to eq(["checks", "rack3 spec/a_spec.rb", "ruby34 spec/a_spec.rb", "system spec/a_spec.rb"])
  end

  it "has a lane that is named run its examples only" do
    expect(run("--lane", "once", "--lane", "rack3")).to eq(["rack3 --tag ~once", "system --tag once"])
  end

  it "leaves out nothing in the lane that has the back end of macOS" do
    expect(run("--lane", "portable")).to eq(["portable"])
  end
end
