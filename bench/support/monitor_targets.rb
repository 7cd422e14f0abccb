# frozen_string_literal: true

require_relative "statistics"
require_relative "targets"

module Bench
  # What the monitor may cost.
  module MonitorTargets
    # PSS in MB, and CPU in % of a core.
    MEMORY = 4.0
    CPU = 0.1

    # p99 beside a thousand control clients, to that without, as medians of the rounds. The thousand are a process of their own, which
    # takes a core for a moment fifty times a second: on two cores, that moves one request in a hundred by some tenths of a
    # millisecond whatever the monitor does. So little the rounds without the thousand differ, too.
    P99 = 1.25

    # @param figures [Hash{String => Object}] `pss_kb` is what the monitor adds, `cpu_percent` what it takes; `alone` and `crowded` are
    #   the p99 of each round
    # @return [Array<Targets::Verdict>]
    def self.check(figures)
      alone, crowded = figures.values_at("alone", "crowded").map { |rounds| Statistics.median(rounds || []) }
      [
        verdict("PSS, MB", figures["pss_kb"]&.fdiv(1024), MEMORY),
        verdict("CPU while scraped each second, % of a core", figures["cpu_percent"], CPU),
        verdict("p99 of hello beside 1,000 control clients, to that without", alone && crowded&.fdiv(alone), P99)
      ]
    end

    def self.verdict(subject, value, limit)
      Targets::Verdict.new("monitor", subject, value, limit, false)
    end
    private_class_method :verdict
  end
end
