# frozen_string_literal: true

module Bench
  module Report
    # The columns of the tables, by kind of measurement.
    module Columns
      LATENCIES = [["p50 ms", "p50_ms", 2], ["p95 ms", "p95_ms", 2], ["p99 ms", "p99_ms", 2]].freeze
      LOAD = [["requests/s", "rps", 0], ["CPU µs/request", "cpu_us", 1], *LATENCIES].freeze
      MEMORY = [
        ["PSS MB after 2,000", "pss_mb_after_2000", 1], ["after 50,000", "pss_mb_after_50000", 1],
        ["after 100,000 requests", "pss_mb_after_100000", 1]
      ].freeze
      MIX = [
        ["requests/s", "rps", 0], *LATENCIES, ["ideal p50", "ideal_p50_ms", 2], ["ideal p95", "ideal_p95_ms", 2],
        ["ideal p99", "ideal_p99_ms", 2], ["p95 to ideal", "p95_to_ideal", 2], ["p99 to ideal", "p99_to_ideal", 2]
      ].freeze
      ROUTER = [
        ["requests/s", "rps", 0], *LATENCIES, ["p50 short", "p50_fast_ms", 2], ["p99 short", "p99_fast_ms", 2],
        ["ideal p50", "ideal_p50_ms", 2], ["ideal p99", "ideal_p99_ms", 2], ["p99 to ideal", "p99_to_ideal", 2]
      ].freeze
      # Of the clients that keep their connections, and of those that connect anew for each request.
      KEPT_AND_NEW = %w[p50 p95 p99].flat_map do |name|
        [["kept #{name} ms", "#{name}_kept_ms", 2], ["new #{name} ms", "#{name}_new_ms", 2], ["new to kept", "#{name}_new_to_kept", 2]]
      end.freeze
      MIX_NEW = [
        ["requests/s", "rps", 0], *KEPT_AND_NEW, ["ideal p50", "ideal_p50_ms", 2], ["ideal p95", "ideal_p95_ms", 2],
        ["ideal p99", "ideal_p99_ms", 2]
      ].freeze
      NEWCOMER = [
        ["requests/s", "rps", 0], ["kept p50 ms", "p50_kept_ms", 2], ["kept p99 ms", "p99_kept_ms", 2],
        ["newcomer's p50 ms", "p50_new_ms", 2], ["its longest ms", "longest_new_ms", 2],
        ["its p50 to kept p50", "p50_new_to_kept", 2], ["its longest to kept p50", "longest_new_to_kept", 2],
        ["its requests", "newcomer_requests", 0]
      ].freeze
      SLOW = [
        ["requests/s alone", "rps_alone", 0], ["beside slow clients", "rps_beside", 0], ["kept", "rps_kept", 3],
        ["longest ms alone", "max_alone_ms", 1], ["beside a huge answer", "max_beside_ms", 1],
        ["slow clients cut off", "broken", 0]
      ].freeze
      OVERLOAD = [
        ["capacity, requests/s", "capacity", 0], ["offered", "offered", 0], ["answered in time, to capacity", "answered_in_time", 2],
        ["refused/s", "refused", 0], ["left/s", "left", 0], ["p99 ms before", "p99_before_ms", 1], ["a second after", "p99_after_ms", 1],
        ["p99 ms of a refusal", "refusal_p99_ms", 2]
      ].freeze
      IDLE = [
        ["connections held", "held", 0], ["still open", "still_open", 0], ["bytes each", "bytes_each", 0],
        ["idle CPU µs/s alone", "idle_cpu_alone_us", 1], ["beside them", "idle_cpu_us", 1],
        ["others' p99 ms alone", "p99_alone_ms", 2], ["beside them", "p99_beside_ms", 2], ["to alone", "p99_kept", 2]
      ].freeze
      GC_HEAP = [
        *LOAD.first(3), ["p99 ms", "p99_ms", 2], ["p99.9 ms", "p999_ms", 2], ["requests with GC %", "gc_share", 2],
        ["with a full mark %", "full_share", 2], ["GC µs/request in it", "gc_in_us", 0], ["in all", "gc_us", 0]
      ].freeze
      PROFILE = [*LOAD.first(2), ["load generator's", "client_us", 1], *LATENCIES].freeze
      PAGE = [*LOAD, ["p99 to p50", "p99_to_p50", 2], ["PSS MB idle", "pss_mb_idle", 1], ["after load", "pss_mb_loaded", 1]].freeze
      REFORK = [
        ["PSS MB idle", "pss_mb_idle", 1], ["after requests", "pss_mb_before", 1], ["most during it", "pss_mb_most", 1],
        ["after refork", "pss_mb_reforked", 1],
        ["after as many more", "pss_mb_after", 1], ["p99 ms before", "p99_before_ms", 2], ["after to before", "p99_kept", 2], ["requests/s after to before", "rps_kept", 2],
        *%w[mold master].flat_map do |from|
          [["first request of the #{from}'s, to steady", "first_from_#{from}", 2], ["mean of 100", "mean_from_#{from}", 2], ["p99", "p99_from_#{from}", 2]]
        end
      ].freeze
      RELOAD = [
        ["PSS MB idle", "pss_mb_idle", 1], ["after requests", "pss_mb_before", 1], ["most during HUP", "pss_mb_most", 1], ["to before", "most_to_before", 2],
        ["p99 ms before", "p99_before_ms", 2], ["during HUP", "p99_reload_ms", 2], ["to before", "p99_kept", 2], ["new workers", "exchanged", 0]
      ].freeze
      # Heading, measurement, digits after the point.
      FIGURES = {
        "load" => LOAD, "keepalive" => [*LOAD, ["least share", "least_share", 2]].freeze, "memory" => MEMORY,
        "gc-heap" => GC_HEAP, "mix" => MIX, "mix-threads" => MIX, "mix-new" => MIX_NEW, "router" => ROUTER, "newcomer" => NEWCOMER,
        "slow" => SLOW, "overload" => OVERLOAD, "idle" => IDLE, "page" => PAGE, "profile" => PROFILE,
        "refork" => REFORK, "reload" => RELOAD
      }.freeze
      # Heading, reference, measurement.
      RATIOS = {
        "load" => [
          ["CPU to nginx", "nginx", "cpu_us"], ["CPU to unicorn", "unicorn", "cpu_us"], ["requests/s to nginx", "nginx", "rps"],
          ["requests/s to unicorn", "unicorn", "rps"]
        ],
        "keepalive" => [
          ["CPU to nginx", "nginx", "cpu_us"], ["requests/s to nginx", "nginx", "rps"],
          ["requests/s to puma", "puma", "rps"]
        ],
        "gc-heap" => [
          ["p99 to without", "fastrack", "p99_ms"], ["p99.9", "fastrack", "p999_ms"], ["CPU", "fastrack", "cpu_us"],
          ["requests/s", "fastrack", "rps"]
        ],
        "page" => [
          ["requests/s to one thread", "fastrack", "rps"], ["to Puma", "puma-threads", "rps"], ["p99 to Puma", "puma-threads", "p99_ms"],
          ["PSS to Puma", "puma-threads", "pss_mb_loaded"]
        ],
        "profile" => [["requests/s to Puma", "puma-threads", "rps"], ["p99 to Puma", "puma-threads", "p99_ms"]],
        "memory" => [
          ["to unicorn after 2,000", "unicorn", "pss_mb_after_2000"],
          ["after 50,000", "unicorn", "pss_mb_after_50000"]
        ]
      }.freeze
      private_constant(*constants(false))

      # @return [Array<Array(String, String, Integer)>] heading, measurement, digits after the point
      def self.figures(kind) = FIGURES.fetch(kind)

      # @return [Array<Array(String, String, String)>] heading, server to compare with, measurement
      def self.ratios(kind) = RATIOS.fetch(kind, [])
    end
  end
end
