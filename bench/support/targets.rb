# frozen_string_literal: true

require_relative "connection_targets"

module Bench
  # Fastrack's targets in a run.
  module Targets
    # One target and what came out. `limit` is the highest value (for requests per second: the lowest) that reaches it;
    # `value` is nil when the run has no such measurement; `most` is what the best of servers could reach, where that is known.
    Verdict = Struct.new(:workload, :subject, :value, :limit, :at_least, :most) do
      def reached? = !value.nil? && (at_least ? value >= limit : value <= limit)

      def to_s
        bound = format("%<sign>s %<limit>.2f", sign: at_least ? ">=" : "<=", limit: limit)
        bound << format("; the app alone allows %.2f", most) if most && most < limit
        found = value ? format("%.3f", value) : "not measured"
        "#{reached? ? "reached" : "MISSED "}  #{workload}: #{subject} #{found} (#{bound})"
      end
    end

    # CPU per request, as a multiple of another server's; by lane where it differs.
    CPU = [
      ["hello-tcp", "unicorn", { "system" => 0.60, "rack3" => 0.33 }],
      ["hello-nginx", "unicorn", { "system" => 0.55, "rack3" => 0.55 }],
      ["file", "nginx", { "system" => 1.50, "rack3" => 1.50, "ruby34" => 1.50 }]
    ].freeze
    # Workload in which no other server may serve more requests per second; nginx runs no app.
    FASTEST = "hello-nginx"
    # PSS may differ by so much, as a share, between two readings of a server that keeps nothing.
    NOISE = 0.01
    # After so many requests, in the lanes that have unicorn.
    MEMORY_TO_UNICORN = { "system" => [2_000, 50_000], "rack3" => [2_000, 50_000] }.freeze
    MEMORY_GROWTH = [[2_000, 50_000], [50_000, 100_000]].freeze
    ROUNDS = 5
    # The variant of Fastrack that the targets are for, by kind of workload.
    OWN = {
      **%w[mix-threads page profile].to_h { |kind| [kind, "fastrack-threads"] },
      "gc-heap" => "fastrack-oobgc-auto", "overload" => "fastrack-max-queue-time"
    }.freeze
    private_constant :OWN, :CPU, :FASTEST, :NOISE, :MEMORY_TO_UNICORN, :MEMORY_GROWTH, :ROUNDS

    # @param results [Hash] as Campaign gives them
    # @return [Array<Verdict>] one for each target of the workloads that were run
    def self.check(results)
      [rounds(results)] + results["workloads"].flat_map do |workload|
        cpu(workload, results["lane"]) + fastest(workload) + memory(workload, results["lane"]) +
          ConnectionTargets.check(workload) + served(workload) + errors(workload)
      end
    end

    # Figures of fewer rounds than this reach nothing.
    def self.rounds(results)
      Verdict.new("run", "rounds", results["quick"] ? 0 : results["rounds"], ROUNDS, true)
    end

    def self.cpu(workload, lane)
      CPU.filter_map do |name, other, limits|
        next unless name == workload["name"] && limits.key?(lane)

        value = own(workload)&.dig("ratios", other, "cpu_us")
        Verdict.new(name, "CPU per request, to #{other}'s", value, limits[lane], false)
      end
    end

    def self.fastest(workload)
      return [] unless workload["name"] == FASTEST

      others = workload["servers"].reject { |server| %w[fastrack nginx].include?(server["name"]) }
      others.map do |other|
        ratios = Statistics.ratios(own(workload)&.fetch("rounds") || [], other["rounds"])
        Verdict.new(FASTEST, "requests/s, to #{other["name"]}'s", ratios["rps"], 1.0, true)
      end
    end

    def self.memory(workload, lane)
      return [] unless workload["kind"] == "memory"

      own = own(workload)
      MEMORY_TO_UNICORN.fetch(lane, []).map do |requests|
        value = own&.dig("ratios", "unicorn", "pss_mb_after_#{requests}")
        Verdict.new("memory", "PSS after #{requests} requests, to unicorn's", value, 1.0, false)
      end + MEMORY_GROWTH.map do |from, to|
        before, after = own&.fetch("medians")&.values_at("pss_mb_after_#{from}", "pss_mb_after_#{to}")
        growth = after.fdiv(before) if before && after
        Verdict.new("memory", "PSS after #{to} requests, to that after #{from}", growth, 1.0 + NOISE, false)
      end
    end

    # In every round. A client that has to wait for longer than a second does so because others go before it.
    def self.served(workload)
      return [] if workload["kind"] == "overload"

      clients, served = own(workload)&.fetch("medians")&.values_at("clients", "clients_served")
      [Verdict.new(workload["name"], "clients served every second", served, clients || 1, true)]
    end

    def self.errors(workload)
      own = own(workload)
      count = own["medians"]["errors"] + own["failed"] if own
      [Verdict.new(workload["name"], "errors and failed rounds", count, 0, false)]
    end

    # With several threads in each worker, or with OobGC=auto, where the workload is about that.
    def self.own(workload)
      name = OWN.fetch(workload["kind"], "fastrack")
      workload["servers"].find { |server| server["name"] == name }
    end
    private_class_method :rounds, :cpu, :fastest, :memory, :served, :errors
  end
end
