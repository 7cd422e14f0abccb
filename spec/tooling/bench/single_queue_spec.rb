# frozen_string_literal: true

require_relative "../../spec_helper"
require_relative "../../../bench/support/bench"

RSpec.describe Bench::SingleQueue, once: "a tool" do
  def latencies(servers, clients, jobs)
    described_class.new(servers: servers, clients: clients).latencies(jobs)
  end

  it "lets requests wait for each other when there is one server" do
    # The first three come at once; from then on each comes when another has just left, behind the two that wait.
    expect(latencies(1, 3, [[0, 10]] * 6)).to eq([10, 20, 30, 30, 30, 30])
  end

  it "lets nobody wait while a server is free" do
    expect(latencies(3, 3, [[5, 10]] * 9)).to eq([10] * 9)
  end

  it "serves whoever came first, however short the others are" do
    # At 0 a long one and, at 1 and 2, two short ones; the second server takes the first of those.
    expect(latencies(2, 3, [[0, 100], [1, 10], [2, 1]])).to eq([10, 10, 100])
  end

  it "pauses before each request, from the answer before" do
    # The second client waits from 4 to 10, the first comes again at 10 + 3.
    expect(latencies(1, 2, [[0, 10], [4, 5], [3, 1]])).to eq([10, 11, 3])
  end

  it "gives no latency for no job, and leaves clients without one out" do
    expect(latencies(2, 4, [])).to eq([])
    expect(latencies(1, 5, [[0, 7]])).to eq([7])
  end

  # Clients that pause for exponential times and are served for exponential times form a birth and death process: with n
  # of c clients at the servers, the next comes at the rate (c - n) / pause, and leaves at min(n, servers) / service.
  # Little's law then gives the mean time at the servers (the machine repairmen of Palm and Feller).
  def mean_by_theory(servers, clients, pause, service)
    weights = (1..clients).each_with_object([1.0]) do |n, all|
      all << (all.last * (clients - n + 1) / pause * service / [n, servers].min)
    end
    throughput = weights.each_with_index.sum { |weight, n| weight * [n, servers].min / service } / weights.sum
    (clients / throughput) - pause
  end

  it "agrees with queueing theory on exponential times" do
    random = Random.new(4)
    exponential = ->(mean) { -mean * Math.log(1 - random.rand) }
    networks = [[2, 16, 40.0, 4.0], [2, 16, 20.0, 4.0], [4, 32, 100.0, 20.0], [1, 8, 10.0, 5.0]]
    networks.each do |servers, clients, pause, service|
      found = latencies(servers, clients, Array.new(60_000) { [exponential[pause], exponential[service]] })
      expect(found.sum / found.size).to be_within(3).percent_of(mean_by_theory(servers, clients, pause, service))
    end
  end
end
