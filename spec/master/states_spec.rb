# frozen_string_literal: true

require "support/fake_system"

# The states of master, generation 0, molds and workers, in any order, with messages that are late, lost or doubled, and processes that end or hang at any
# step: FakeSystem. What the master itself does is real.
RSpec.describe "A master whose processes do what they like", once: "no process" do
  # FASTRACK_SEEDS=5000 for a night's run, FASTRACK_SEED=17 for one of them.
  seeds = ENV["FASTRACK_SEED"] ? [Integer(ENV["FASTRACK_SEED"])] : 0...Integer(ENV.fetch("FASTRACK_SEEDS", 40))
  steps = 40

  # Lines that are no messages, or come from the wrong process, in all runs together.
  babble = 100_000 / 40

  # @return [FakeSystem::Broken, StandardError, nil]
  def fault(seed, steps, babble = 0)
    FakeSystem.new(seed, steps, babble).run
    nil
  rescue StandardError => e
    e
  end

  # @return [Array(Integer, StandardError)] the fewest faults of a run that fail, and how
  def shortest(seed, steps) = (0..steps).lazy.map { |fewer| [fewer, fault(seed, fewer)] }.find(&:last)

  it "knows each of them, has one worker for each number once nothing goes wrong, and leaves none behind" do
    seeds.each do |seed|
      next unless fault(seed, steps)

      fewest, error = shortest(seed, steps)
      raise "FASTRACK_SEED=#{seed}, after #{fewest} faults: #{error.message}\n#{error.backtrace.first(12).join("\n") unless error.is_a?(FakeSystem::Broken)}"
    end
  end

  it "outlives whatever their channels say, and has its workers again once they say nothing more" do
    seeds.each do |seed|
      error = fault(seed, steps, babble) or next
      raise "FASTRACK_SEED=#{seed}, with babble: #{error.message}\n#{error.backtrace.first(12).join("\n") unless error.is_a?(FakeSystem::Broken)}"
    end
  end
end
