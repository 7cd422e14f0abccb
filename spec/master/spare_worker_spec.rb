# frozen_string_literal: true

require_relative "../../lib/fastrack/memory/spare_worker"

RSpec.describe "MaxWorkers=auto, with time that is told", once: "a judgement without processes" do
  # The figures of the last look, or nil. Each look: seconds, workers, busy ones, requests in all, those that did not wait.
  def judge(looks, period: 60, least: 2)
    spare = Fastrack::SpareWorker.new(period, least)
    looks.map { |now, size, busy, count, prompt| spare.look(now, size, busy) { { count: count, buckets: { 0.01 => prompt } } } }.last
  end

  it "takes a worker away when it was idle for the whole period and nobody waited" do
    expect(judge([[0, 4, 3, 0, 0], [30, 4, 2, 50, 50], [60, 4, 3, 100, 99]])).to eq("at most 3 busy in 60 s, 99 of 100 requests in the queue for less than 10 ms")
    expect(judge([[0, 4, 0, 0, 0], [60, 4, 0, 0, 0]])).to eq("at most 0 busy in 60 s, 0 of 0 requests in the queue for less than 10 ms")
  end

  {
    "a worker was needed once" => [[0, 4, 1, 0, 0], [30, 4, 4, 50, 50], [60, 4, 1, 100, 100]],
    "requests have waited" => [[0, 4, 1, 0, 0], [60, 4, 1, 100, 98]],
    "the period is not over" => [[0, 4, 1, 0, 0], [59, 4, 1, 100, 100]],
    "the number has changed meanwhile" => [[0, 3, 1, 0, 0], [30, 4, 1, 50, 50], [60, 4, 1, 100, 100]],
    "the server has as many as it has started with" => [[0, 2, 0, 0, 0], [60, 2, 0, 100, 100]]
  }.each do |why, looks|
    it("takes none away when #{why}") { expect(judge(looks)).to be_nil }
  end

  it "takes none away with a period of 0, and begins a new period after each judgement" do
    expect(judge([[0, 4, 0, 0, 0], [9999, 4, 0, 0, 0]], period: 0)).to be_nil
    expect(judge([[0, 4, 4, 0, 0], [60, 4, 1, 100, 100], [119, 4, 1, 100, 100]])).to be_nil
    expect(judge([[0, 4, 4, 0, 0], [60, 4, 1, 100, 100], [120, 4, 1, 100, 100]])).to match(/at most 1 busy/)
  end
end
