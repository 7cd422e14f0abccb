# frozen_string_literal: true

require_relative "../../lib/fastrack/master/monitor_thread"

RSpec.describe "The orders that a master has had", once: "no process" do
  let(:published) { [] }
  let(:orders) { Fastrack::Orders.new { published << @orders.to_a.last } }

  before { @orders = orders }

  it "are told before they are obeyed, in their order, and what has come of each" do
    %w[HUP USR2 HUP].each { |signal| orders.begin(signal) }
    expect(published.map(&:first)).to eq([1, 2, 3])
    orders.started("USR2", 77)
    orders.refused("HUP", "no luck")
    orders.done("HUP")
    orders.failed("USR2", "gone")
    expect(orders.to_a).to eq([[1, "HUP", "done", nil, nil], [2, "USR2", "failed", "gone", 77], [3, "HUP", "failed", "no luck", nil]])
    # What has ended stays so.
    orders.failed("HUP", "late")
    expect(orders.to_a.first).to eq([1, "HUP", "done", nil, nil])
  end

  it "have failed all but the last one when that takes the others' place" do
    %w[HUP URG HUP HUP].each { |signal| orders.begin(signal) }
    orders.superseded("HUP", "another HUP has come")
    expect(orders.to_a.map { |order| order[2] }).to eq(%w[failed begun failed begun])
  end

  it "are kept for a while, and keep their numbers" do
    (Fastrack::Orders::KEPT + 5).times { orders.begin("HUP") }
    expect(orders.to_a.map(&:first)).to eq((6..Fastrack::Orders::KEPT + 5).to_a)
  end
end
