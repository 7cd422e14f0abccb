# frozen_string_literal: true

require_relative "app_alone"

module Bench
  # Fastrack's targets in the workloads about connections, in every lane.
  module ConnectionTargets
    # One figure of the medians of Fastrack: measurement, words, limit, whether that is the least.
    FIGURES = {
      "keepalive" => [["least_share", "share of the less busy worker", 1.0 / 3, true]],
      "mix" => [
        ["p95_to_ideal", "p95, to that of an ideal single queue", 1.10, false],
        ["p99_to_ideal", "p99, to that of an ideal single queue", 1.10, false]
      ],
      "mix-threads" => [
        ["p95_to_ideal", "p95, to that of an ideal single queue", 1.10, false],
        ["p99_to_ideal", "p99, to that of an ideal single queue", 1.10, false]
      ],
      "mix-new" => [
        ["p50_new_to_kept", "median of clients that connect anew, to that of kept ones", 1.25, false],
        ["p99_new_to_kept", "p99 of clients that connect anew, to that of kept ones", 1.25, false],
        ["p99_to_ideal", "p99, to that of an ideal single queue", 1.10, false]
      ],
      "newcomer" => [
        ["longest_new_to_kept", "the newcomer's longest wait, to the median of kept clients", 1.50, false]
      ],
      "slow" => [
        ["rps_kept", "requests/s beside slow clients, to those without", 0.95, true],
        # The cores' other users cost so much at worst; a request that waits for the slow reader takes seconds.
        ["max_beside_ms", "longest latency in ms beside a huge answer", 100.0, false]
      ],
      "overload" => [
        ["answered_in_time", "requests answered in time, to the capacity", 0.95, true],
        ["p99_kept", "p99 from a second after the overload, to that before", 1.25, false],
        ["refusal_p99_ms", "ms that a refusal takes, p99", 5.0, false]
      ],
      "idle" => [
        ["still_open", "idle connections", 10_000, true],
        ["bytes_each", "bytes of memory per idle connection", 4_096.0, false],
        # A ten-thousandth of a core: a process that only wakes up a few times a second uses more.
        ["idle_cpu_us", "CPU us per second while idle", 100.0, false],
        # Unchanged, but for what the machine does meanwhile.
        ["p99_kept", "p99 of other traffic, to that without", 1.10, false]
      ]
    }.freeze
    # The same by workload.
    FIGURES_OF_ONE = {
      "rails-page" => [["p99_to_p50", "p99, to p50", 1.30, false]]
    }.freeze
    # A figure as a multiple of another server's: by workload.
    RATIOS = {
      "keepalive" => [["puma", "rps", "requests/s", 3.5, true]],
      "threads-sleep" => [["puma-threads", "rps", "requests/s", 1.0, true]],
      "rails-page" => [["fastrack", "rps", "requests/s", 0.97, true]],
      "rails-wait" => [
        ["puma-threads", "rps", "requests/s", 1.0, true], ["puma-threads", "p99_ms", "p99", 0.70, false],
        ["puma-threads", "pss_mb_loaded", "PSS after load", 0.70, false]
      ],
      # Where clients always wait there is no good moment for a collection: nothing may be lost then.
      "gc-heap" => [["fastrack", "rps", "requests/s", 0.98, true]],
      **%w[gc-heap-70 gc-heap-50 gc-heap-30].to_h do |name|
        [name, [["fastrack", "p99_ms", "p99", 0.75, false], ["fastrack", "p999_ms", "p99.9", 0.75, false],
                ["fastrack", "cpu_us", "CPU per request", 1.05, false]]]
      end
    }.freeze
    # The same by kind.
    RATIOS_OF_ALL = {
      "profile" => [["puma-threads", "rps", "requests/s", 1.5, true], ["puma-threads", "p99_ms", "p99", 1.0, false]]
    }.freeze
    PERCENTILES = %w[p95_ms p99_ms].freeze
    private_constant :FIGURES, :FIGURES_OF_ONE, :RATIOS, :RATIOS_OF_ALL, :PERCENTILES

    # @param workload [Hash] of the results
    # @return [Array<Targets::Verdict>]
    def self.check(workload)
      own = Targets.own(workload)
      figures(workload, own) + ratios(workload, own) + below_others(workload, own)
    end

    def self.figures(workload, own)
      (FIGURES.fetch(workload["kind"], []) + FIGURES_OF_ONE.fetch(workload["name"], [])).map do |name, words, limit, at_least|
        Targets::Verdict.new(workload["name"], words, own&.dig("medians", name), limit, at_least)
      end
    end

    def self.ratios(workload, own)
      (RATIOS.fetch(workload["name"], []) + RATIOS_OF_ALL.fetch(workload["kind"], [])).map do |other, name, words, limit, at_least|
        value = own&.dig("ratios", other, name)
        most = AppAlone.most_to(workload, other) if name == "rps"
        Targets::Verdict.new(workload["name"], "#{words}, to #{other}'s", value, limit, at_least, most)
      end
    end

    # No other server of the run, and not Fastrack without hand-over either, may have lower percentiles.
    def self.below_others(workload, own)
      return [] unless %w[mix mix-threads].include?(workload["kind"])

      # Without threads a server takes less at a time.
      others = workload["servers"].reject { |server| server == own || workload["kind"] == "mix-threads" && server["name"] == "fastrack" }
      others.product(PERCENTILES).map do |other, name|
        value = Statistics.ratios(own&.fetch("rounds") || [], other["rounds"])[name]
        words = "#{name.delete_suffix("_ms")}, to #{other["name"]}'s"
        Targets::Verdict.new(workload["name"], words, value, 1.0, false)
      end
    end
    private_class_method :figures, :ratios, :below_others
  end
end
