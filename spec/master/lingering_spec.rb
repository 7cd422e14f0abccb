# frozen_string_literal: true

require_relative "../../lib/fastrack/master/lingering"
require_relative "../../lib/fastrack/master/workers"

RSpec.describe Fastrack::Lingering, once: "the master's part" do
  # As much of a WorkerHandle as it needs.
  handle = Struct.new(:name, :channel, :stopping_since) do
    include Fastrack::LingeringWorker

    def initialize(name)
      super(name, [], 0.0)
      @channel = Class.new(Array) { alias_method :write, :push }.new
      @ended = false
    end

    def orders = @channel
  end

  configuration = Struct.new(:linger, :graceful_timeout).new(300.0, 30.0)

  let(:handles) { Array.new(4) { |number| handle.new("worker #{number}") } }
  let(:workers) { Struct.new(:each, :size).new(handles.each, 4) }
  let(:lingering) { described_class.new(workers) }

  before do
    allow(Fastrack::Log).to receive(:line)
    handles.each_with_index { |one, number| lingering.add(one, 1, 0, number.to_f) }
  end

  def orders = handles.map(&:orders)
  def step(now, config) = lingering.step(now, config)

  it "has a worker end its streams and sockets after Linger, spread over half of GracefulTimeout, and not before" do
    step(299.0, configuration)
    expect([orders.uniq, lingering.due_at]).to eq([[[]], 300.0])
    step(300.0, configuration)
    expect([orders, lingering.due_at]).to eq([[["end all 15.0"], [], [], []], 301.0])
    step(600.0, configuration)
    expect([orders.uniq, lingering.due_at]).to eq([[["end all 15.0"]], nil])
  end

  it "begins with the oldest where more linger than there are workers" do
    workers.size = 2
    step(10.0, configuration)
    step(11.0, configuration)
    expect(orders).to eq([["end all 15.0"], ["end all 15.0"], [], []])
  end

  it "makes room in memory by one after the other, the oldest first" do
    expect([10.0, 14.0, 16.0].map { |now| lingering.make_room(now) }).to eq([true, true, true])
    expect(orders).to eq([["end all 2"], ["end all 2"], [], []])
    expect([22.0, 28.0, 34.0].map { |now| lingering.make_room(now) }).to eq([true, true, false])
  end

  it "lets a server that stops end them before GracefulTimeout is over" do
    lingering.stop(100.0)
    step(126.0, configuration)
    expect([orders.uniq, lingering.due_at]).to eq([[[]], 127.0])
    step(127.0, configuration)
    expect(orders.uniq).to eq([["end all 1.5"]])
  end

  it "leaves half of a short GracefulTimeout" do
    short = configuration.dup.tap { |one| one.graceful_timeout = 2.0 }
    lingering.stop(100.0)
    step(100.9, short)
    expect(orders.uniq).to eq([[]])
    step(101.0, short)
    expect(orders.uniq).to eq([["end all 0.5"]])
  end

  it "has the sockets of all left, also of those that come later, when the server stops for good" do
    lingering.leave_sockets
    handles << (late = handle.new("late"))
    lingering.add(late, 0, 1, 5.0)
    expect(orders.uniq).to eq([["leave"]])
  end
end
