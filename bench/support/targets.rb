# frozen_string_literal: true

require_relative "statistics"

module Bench
  # Fastrack's targets in a run.
  module Targets
    # One target and what came out. `limit` is the highest value (for requests per second: the lowest) that reaches it;
    # `value` is nil when the run has no such measurement.
    Verdict = Struct.new(:workload, :subject, :value, :limit, :at_least) do
      def reached? = !value.nil? && (at_least ? value >= limit : value <= limit)

      def to_s
        bound = format("%<sign>s %<limit>.2f", sign: at_least ? ">=" : "<=", limit: limit)
        found = value ? format("%.3f", value) : "not measured"
        "#{reached? ? "reached" : "MISSED "}  #{workload}: #{subject} #{found} (#{bound})"
      end
    end

    # The limit of one median of Fastrack, or of its ratio to another server's. A Hash has the limits of lanes; other lanes have none.
    Target = Struct.new(:figure, :words, :limit, :at_least, :to)

    def self.at_most(figure, words, limit, to: nil) = Target.new(figure, words, limit, false, to)
    def self.at_least(figure, words, limit, to: nil) = Target.new(figure, words, limit, true, to)
    private_class_method :at_most, :at_least

    TO_IDEAL = %w[p95 p99].map { |name| at_most("#{name}_to_ideal", "#{name}, to that of an ideal single queue", 1.10) }.freeze
    # In the lanes that have unicorn.
    NO_MORE = { "system" => 1.0, "rack3" => 1.0 }.freeze
    GC = [
      at_most("p99_ms", "p99", 0.75, to: "fastrack"), at_most("p999_ms", "p99.9", 0.75, to: "fastrack"),
      at_most("cpu_us", "CPU per request", 1.05, to: "fastrack")
    ].freeze
    # By kind of measurement.
    OF_KIND = {
      "keepalive" => [at_least("least_share", "share of the less busy worker", 1.0 / 3)],
      "mix" => TO_IDEAL, "mix-threads" => TO_IDEAL,
      "mix-new" => [
        at_most("p50_new_to_kept", "median of clients that connect anew, to that of kept ones", 1.25),
        at_most("p99_new_to_kept", "p99 of clients that connect anew, to that of kept ones", 1.25), TO_IDEAL.last
      ],
      "newcomer" => [at_most("longest_new_to_kept", "the newcomer's longest wait, to the median of kept clients", 1.50)],
      "slow" => [
        at_least("rps_kept", "requests/s beside slow clients, to those without", 0.95),
        # The cores' other users cost so much at worst; a request that waits for the slow reader takes seconds.
        at_most("max_beside_ms", "longest latency in ms beside a huge answer", 100.0)
      ],
      "overload" => [
        at_least("answered_in_time", "requests answered in time, to the capacity", 0.95),
        at_most("p99_kept", "p99 from a second after the overload, to that before", 1.25), at_most("refusal_p99_ms", "ms that a refusal takes, p99", 5.0)
      ],
      "idle" => [
        at_least("still_open", "idle connections", 10_000), at_most("bytes_each", "bytes of memory per idle connection", 4_096.0),
        # A ten-thousandth of a core: a process that only wakes up a few times a second uses more.
        at_most("idle_cpu_us", "CPU us per second while idle", 100.0),
        # Unchanged, but for what the machine does meanwhile.
        at_most("p99_kept", "p99 of other traffic, to that without", 1.10)
      ],
      "refork" => [
        at_most("pss_mb_idle", "PSS before the first request", NO_MORE, to: "unicorn"),
        at_most("pss_mb_most", "the most PSS during a refork", { "rack3" => 1.08, "rack32" => 1.08 }, to: "unicorn"),
        at_most("pss_mb_after", "PSS after refork and as many requests", { "rack3" => 0.70, "rack32" => 0.68 }, to: "unicorn")
      ],
      "reload" => [
        at_most("errors", "lost requests", 0),
        at_most("most_to_before", "the most PSS meanwhile, to that before", 1.60)
      ],
      "memory" => [
        *[2_000, 50_000].map { |requests| at_most("pss_mb_after_#{requests}", "PSS after #{requests} requests", NO_MORE, to: "unicorn") },
        # Two readings of a server that keeps nothing may differ by so much.
        at_most("growth", "PSS in the end, to that half of the requests before", 1.01)
      ],
      "profile" => [at_least("rps", "requests/s", 1.5, to: "puma-threads"), at_most("p99_ms", "p99", 1.0, to: "puma-threads")]
    }.freeze
    OF_WORKLOAD = {
      "hello-tcp" => [at_most("cpu_us", "CPU per request", { "system" => 0.60, "rack3" => 0.33 }, to: "unicorn")],
      "hello-nginx" => [at_most("cpu_us", "CPU per request", { "system" => 0.55, "rack3" => 0.55 }, to: "unicorn")],
      "file" => [at_most("cpu_us", "CPU per request", { "system" => 1.50, "rack3" => 1.50, "ruby34" => 1.50 }, to: "nginx")],
      "keepalive" => [at_least("rps", "requests/s", 3.5, to: "puma")],
      "threads-sleep" => [at_least("rps", "requests/s", 1.0, to: "puma-threads")],
      "rails-page" => [at_most("p99_to_p50", "p99, to p50", 1.30), at_least("rps", "requests/s", 0.97, to: "fastrack")],
      "rails-wait" => [
        at_least("rps", "requests/s", 1.0, to: "puma-threads"), at_most("p99_ms", "p99", 0.70, to: "puma-threads"),
        at_most("pss_mb_loaded", "PSS after load", 0.70, to: "puma-threads")
      ],
      # Where clients always wait there is no good moment for a collection: nothing may be lost then.
      "gc-heap" => [at_least("rps", "requests/s", 0.98, to: "fastrack")],
      "gc-heap-70" => GC, "gc-heap-50" => GC, "gc-heap-30" => GC
    }.freeze
    # No other server of the run may be better; nginx runs no app.
    BEST = { "hello-nginx" => [["rps", "requests/s", true]], **%w[mix mix-threads].to_h { |kind| [kind, [["p95_ms", "p95", false], ["p99_ms", "p99", false]]] } }.freeze
    ROUNDS = 5
    # The variant of Fastrack that the targets are for, by kind of workload.
    OWN = {
      **%w[mix-threads page profile].to_h { |kind| [kind, "fastrack-threads"] },
      "gc-heap" => "fastrack-oobgc-auto", "overload" => "fastrack-max-queue-time"
    }.freeze
    private_constant(*constants(false) - [:Verdict])

    # @param results [Hash] as Campaign gives them
    # @return [Array<Verdict>] one for each target of the workloads that were run. Figures of too few rounds reach nothing
    def self.check(results)
      rounds = Verdict.new("run", "rounds", results["quick"] ? 0 : results["rounds"], ROUNDS, true)
      [rounds] + results["workloads"].flat_map do |workload|
        name = OWN.fetch(workload["kind"], "fastrack")
        own = workload["servers"].find { |server| server["name"] == name }
        limits(workload, own, results["lane"]) + best(workload, own) + served(workload, own)
      end
    end

    def self.limits(workload, own, lane)
      targets = OF_KIND.fetch(workload["kind"], []) + OF_WORKLOAD.fetch(workload["name"], [])
      targets.filter_map do |target|
        limit = target.limit.is_a?(Hash) ? target.limit[lane] : target.limit
        next unless limit

        value = target.to ? own&.dig("ratios", target.to, target.figure) : own&.dig("medians", target.figure)
        Verdict.new(workload["name"], "#{target.words}#{", to #{target.to}'s" if target.to}", value, limit, target.at_least)
      end
    end

    # Fastrack without hand-over may not be better either. Without threads a server takes less at a time.
    def self.best(workload, own)
      others = workload["servers"].reject { |server| server == own || server["name"] == "nginx" || (workload["kind"] == "mix-threads" && server["name"] == "fastrack") }
      others.product(BEST[workload["name"]] || BEST.fetch(workload["kind"], [])).map do |other, (figure, words, at_least)|
        value = Statistics.ratios(own&.fetch("rounds") || [], other["rounds"])[figure]
        Verdict.new(workload["name"], "#{words}, to #{other["name"]}'s", value, 1.0, at_least)
      end
    end

    # In every round. A client that has to wait for longer than a second does so because others go before it.
    def self.served(workload, own)
      clients, served, errors = own&.fetch("medians")&.values_at("clients", "clients_served", "errors")
      waits = Verdict.new(workload["name"], "clients served every second", served, clients || 1, true)
      failed = Verdict.new(workload["name"], "errors and failed rounds", errors && (errors + own["failed"]), 0, false)
      workload["kind"] == "overload" ? [failed] : [waits, failed]
    end
    private_class_method :limits, :best, :served
  end
end
