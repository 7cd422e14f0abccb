# frozen_string_literal: true

require "open3"
require "rbconfig"
require_relative "../spec_helper"

RSpec.describe "bench/respawn" do
  it "C1 a dead worker's place is served again within 100 ms in the median, whatever has ended it" do
    output, status = Open3.capture2e(RbConfig.ruby, "-w", File.join(Server::ROOT, "bench/respawn"), "--rounds", "5", "--check")
    expect(status.exitstatus).to eq(0), output
    expect(output.scan(/^([A-Z]+) +median +([\d.]+) ms/).to_h.transform_values(&:to_f)).to match(
      %w[KILL SEGV ABRT TERM QUIT].to_h { |name| [name, be_between(0.1, 100)] }
    )
  end
end
