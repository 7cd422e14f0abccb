# frozen_string_literal: true

require_relative "../../spec_helper"
require_relative "../../../bench/support/bench"
require_relative "../../../bench/support/turns"

RSpec.describe Bench::Turns, once: "a tool" do
  # A measurement of so many turns, and what is seen of it.
  def measurement(name, turns, seen)
    lambda do
      number = -1
      described_class.each(turns) do
        seen << "#{name}#{number += 1}"
        yield if block_given?
        number
      end
    ensure
      seen << "#{name} ended"
    end
  end

  it "lets each measurement go on until it waits for its turn, forwards and backwards" do
    seen = []
    results = described_class.take(a: measurement("a", 2, seen), b: measurement("b", 3, seen), c: -> { seen << "c" && 5 })
    expect(seen).to eq(["c", "b0", "a0", "a1", "a ended", "b1", "b2", "b ended"])
    expect(results).to eq(a: [0, 1], b: [0, 1, 2], c: 5)
  end

  it "has nobody wait for a turn that is the only one" do
    expect(described_class.each(1) { 5 }).to eq([5])
  end

  it "has all measurements stop what they have started when one fails" do
    seen = []
    failing = measurement("b", 2, seen) { raise ArgumentError, "no answer" }
    expect { described_class.take(a: measurement("a", 2, seen), b: failing) }.to raise_error(ArgumentError, "no answer")
    expect(seen).to eq(["b0", "b ended", "a ended"])
    seen.clear
    expect { described_class.take(a: -> { raise IOError }, b: measurement("b", 2, seen)) }.to raise_error(IOError)
    expect(seen).to eq([])
  end

  describe "in a campaign" do
    let(:speeds) { { "fastrack" => [100, 50, 80, 60], "fastrack-threads" => [99, 48, 80, 61] } }

    before { allow(Bench::Database).to receive(:start).and_return(double(stop: nil)) }

    # @param failing [Integer, nil] the round in which the server with threads answers nothing after three turns
    # @return [Array<Hash>] the results of servers in two rounds
    def servers(failing: nil)
      allow(Bench::Trial).to receive(:new) do |server, _, _, _, round, **|
        double.tap { |trial| allow(trial).to receive(:run) { turns_of(server.name, failing == round) } }
      end
      options = Bench::Options.new(%w[--workload rails-page --server fastrack,fastrack-threads --rounds 2])
      Bench::Campaign.new(options, log: StringIO.new).run["workloads"].first["servers"]
    end

    def turns_of(name, fails)
      speeds.fetch(name).each_with_index.map do |speed, turn|
        Bench::Turns.await
        raise Bench::RunningServer::Failed, "no answer" if fails && name.end_with?("threads") && turn == 3

        { "errors" => 0, "rps" => speed }
      end
    end

    it "are rounds of their own, in which servers are compared" do
      one, five = servers
      expect([one["rounds"].size, five["ratios"].dig("fastrack", "rps")]).to eq([8, 0.995])
    end

    it "have all failed where one of the round has" do
      one, five = servers(failing: 1)
      expect([one["rounds"].compact.size, five["rounds"].size, five["failed"]]).to eq([8, 8, 4])
      expect { servers(failing: 0) }.to raise_error(Bench::RunningServer::Failed)
    end
  end
end
