# frozen_string_literal: true

require "socket"
require_relative "../../spec_helper"
require_relative "../../support/tiny_server"
require_relative "../../../bench/support/bench"

RSpec.describe "clients that are served every second", once: "a tool" do
  def answer(**fields) = TinyServer::Answer.new(**fields)

  def load(endpoint, connections, seconds, **options)
    Bench::ClosedLoop.new(endpoints: [endpoint], connections: connections, **options).for_seconds(seconds)
  end

  # Answers everybody at once but whoever asks first: that connection never gets an answer.
  def starving_one(&block)
    asked = 0
    serve = lambda do |_path|
      sleep if (asked += 1) == 1
      answer
    end
    TinyServer.run(serve, &block)
  end

  describe Bench::ClosedLoop do
    it "counts all where all are" do
      TinyServer.run(->(_) { answer }) do |server|
        expect(load(server.endpoint, 3, 0.2)).to include(
          clients: 3, served_every_second: 3, longest_gap_us: be_between(1, 900_000)
        )
      end
    end

    it "counts one less where one is never answered, which its percentiles do not show" do
      starving_one do |server|
        found = load(server.endpoint, 4, 0.5, patience: 1.2)
        expect(found).to include(clients: 4, served_every_second: 3, longest_gap_us: be > 1_200_000)
        expect(found[:requests]).to be > 100
        expect(found[:p99_us]).to be < 200_000
        expect(found[:errors]).to include(timeout: 1, read: 0, connect: 0)
      end
    end

    it "counts nobody where connections stay in the accept queue" do
      TCPServer.open("127.0.0.1", 0) do |listener|
        found = load("127.0.0.1:#{listener.addr[1]}", 2, 0.1, patience: 1.1)
        expect(found).to include(requests: 0, clients: 2, served_every_second: 0, longest_gap_us: be > 1_100_000)
      end
    end

    it "does not count the time that the app says it took" do
      found = [{ "X-Service-Time" => 1_150_000 }, {}].map do |headers|
        TinyServer.run(->(_) { sleep(1.15) && answer(headers: headers) }) { |server| load(server.endpoint, 2, 0.1) }
      end
      expect(found.map { |one| one[:served_every_second] }).to eq([2, 0])
      expect(found.map { |one| one[:requests] }).to eq([2, 2])
    end

    it "goes on counting when a request fails and the next is made" do
      TinyServer.run(->(_) { answer(status: 503) }) do |server|
        expect(load(server.endpoint, 1, 1.3)).to include(clients: 1, served_every_second: 0)
      end
    end
  end

  describe Bench::Measurements::Served do
    it "tells of the load with most clients left waiting, and the longest gap of all" do
      loads = [[32, 32, 9_000], [8, 6, 1_200_000], [32, 31, 7_000_000]].map do |clients, served, gap|
        { clients: clients, served_every_second: served, longest_gap_us: gap }
      end
      expect(described_class.of(*loads)).to eq("clients" => 8, "clients_served" => 6, "longest_gap_ms" => 7_000.0)
      expect(described_class.of(loads.first)).to eq("clients" => 32, "clients_served" => 32, "longest_gap_ms" => 9.0)
    end
  end

  describe "a run" do
    def served(clients, served, gap)
      { "clients" => clients, "clients_served" => served, "longest_gap_ms" => gap, "rps" => 1.0, "errors" => 0 }
    end

    def results(*rounds)
      server = { "name" => "fastrack", "rounds" => rounds, "failed" => 0, "medians" => Bench::Statistics.medians(rounds), "ratios" => {} }
      workload = { "name" => "gc", "title" => "Hello", "kind" => "load", "workers" => 2, "concurrency" => 4, "servers" => [server] }
      { "format" => Bench::Campaign::FORMAT, "started" => "now", "quick" => false, "lane" => "system", "machine" => {},
        "versions" => { "ruby" => "ruby" }, "rounds" => 5, "seconds" => 1.0, "workloads" => [workload] }
    end

    def missed(results) = Bench::Targets.check(results).reject(&:reached?).map(&:subject)

    it "tells of its worst round" do
      rounds = [served(4, 4, 3.0), served(4, 3, 1_200.0), served(4, 4, 2_000.0), nil]
      expect(Bench::Statistics.medians(rounds)).to include("clients" => 4, "clients_served" => 3, "longest_gap_ms" => 2_000.0)
    end

    it "reaches the target with everybody served only, and is marked where one is not" do
      all = results(served(4, 4, 3.0), served(4, 4, 5.4))
      expect(missed(all)).to eq([])
      expect(Bench::Report::Markdown.new(all).tables).to include("| clients served every second | longest gap ms |", "| 4 of 4 | 5 |")
      one_less = results(served(4, 4, 3.0), served(4, 3, 1_200.0))
      expect(missed(one_less)).to eq(["clients served every second"])
      expect(Bench::Report::Markdown.new(one_less).tables).to include("| **3 of 4** | 1,200 |")
    end

    it "misses it where nobody counted" do
      expect(missed(results("rps" => 1.0, "errors" => 0))).to eq(["clients served every second"])
      expect(Bench::Report::Markdown.new(results("rps" => 1.0, "errors" => 0)).tables).to include("| – | – | 0 |")
    end

    it "fails with a server that starves one of its clients" do
      found = starving_one { |server| load(server.endpoint, 4, 0.5, patience: 1.2) }
      figures = Bench::Measurements::Load.result(1_000, found).merge("errors" => 0)
      expect(missed(results(figures))).to eq(["clients served every second"])
      expect(Bench::Report::Markdown.new(results(figures)).tables).to include("**3 of 4**")
    end
  end
end
