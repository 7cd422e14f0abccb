# frozen_string_literal: true

require_relative "statistics"
require_relative "targets"

module Bench
  # What the monitor may cost.
  module MonitorTargets
    # PSS in MB, and CPU in % of a core.
    MEMORY = 4.0
    CPU = 0.1

    # p99 beside a thousand control clients, to that beside a thousand clients of another process, as medians of the rounds. So what the
    # thousand themselves cost, a process that wakes up fifty times a second, is in both. On two cores a hundredth of the requests
    # meets that or something else that the machine does, and rounds of the same kind differ by a tenth to a fifth.
    P99 = 1.25

    # @param figures [Hash{String => Object}] `pss_kb` is what the monitor adds, `cpu_percent` what it takes; `elsewhere` and `crowded`
    #   are the p99 of each round
    # @return [Array<Targets::Verdict>]
    def self.check(figures)
      elsewhere, crowded = figures.values_at("elsewhere", "crowded").map { |rounds| Statistics.median(rounds || []) }
      [
        verdict("PSS, MB", figures["pss_kb"]&.fdiv(1024), MEMORY),
        verdict("CPU while scraped each second, % of a core", figures["cpu_percent"], CPU),
        verdict("p99 of hello beside 1,000 control clients, to that beside 1,000 elsewhere", elsewhere && crowded&.fdiv(elsewhere), P99)
      ]
    end

    def self.verdict(subject, value, limit)
      Targets::Verdict.new("monitor", subject, value, limit, false)
    end
    private_class_method :verdict
  end
end
