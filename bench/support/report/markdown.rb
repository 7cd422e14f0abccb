# frozen_string_literal: true

module Bench
  module Report
    # A run's results as tables for people.
    class Markdown
      # Heading, measurement, digits after the point.
      LOAD = [
        ["requests/s", "rps", 0], ["CPU µs/request", "cpu_us", 1],
        ["p50 ms", "p50_ms", 2], ["p95 ms", "p95_ms", 2], ["p99 ms", "p99_ms", 2]
      ].freeze
      MEMORY = [
        ["PSS MB after 2,000", "pss_mb_after_2000", 1], ["after 50,000", "pss_mb_after_50000", 1],
        ["after 100,000 requests", "pss_mb_after_100000", 1]
      ].freeze
      # Heading, reference, measurement.
      LOAD_RATIOS = [
        ["CPU to limit", "limit", "cpu_us"], ["CPU to unicorn", "unicorn", "cpu_us"],
        ["requests/s to limit", "limit", "rps"], ["requests/s to unicorn", "unicorn", "rps"]
      ].freeze
      MEMORY_RATIOS = [
        ["to unicorn after 2,000", "unicorn", "pss_mb_after_2000"],
        ["after 50,000", "unicorn", "pss_mb_after_50000"]
      ].freeze
      private_constant :LOAD, :MEMORY, :LOAD_RATIOS, :MEMORY_RATIOS

      # @param results [Hash] as Campaign gives them
      def initialize(results)
        @results = results
      end

      # @param chart [String] where the chart is, seen from the document
      # @return [String] the whole document
      def document(chart)
        "#{head}\n![CPU per request, by workload and server](#{chart})\n\n#{tables}"
      end

      # @return [String] one table for each workload
      def tables
        @results["workloads"].map { |workload| section(workload) }.join("\n")
      end

      private

      def head
        machine = @results["machine"]
        versions = @results["versions"]
        gems = versions.reject { |name, _| name == "ruby" }.map { |name, version| "#{name} #{version}" }
        <<~TEXT
          # #{"A quick run, whose figures mean nothing: " if @results["quick"]}Results: lane `#{@results["lane"]}`

          Made by `bench/run --lane #{@results["lane"]}` at #{@results["started"]}:
          medians of #{@results["rounds"]} rounds, #{@results["seconds"]} s of load each.
          What the figures mean is told in docs/benchmark.md.

          - #{versions["ruby"]}; #{gems.join(", ")}
          - #{machine["cpu"]}, #{machine["cores"]} cores (shared with the load generator), #{machine["memory_gb"]} GB,
            Linux #{machine["kernel"]}; #{machine["wrk"]}, #{machine["nginx"]}
        TEXT
      end

      def section(workload)
        columns, ratios = workload["kind"] == "memory" ? [MEMORY, MEMORY_RATIOS] : [LOAD, LOAD_RATIOS]
        servers = workload["servers"]
        ratios = ratios.select { |_, reference, name| servers.any? { |server| ratio(server, reference, name) } }
        head = ["", *columns.map(&:first), *ratios.map(&:first), "errors"]
        rows = servers.map { |server| row(server, columns, ratios) }
        <<~TEXT
          ## #{workload["title"]} (`#{workload["name"]}`)

          #{workload["workers"]} workers, #{workload["concurrency"]} connections.

          #{line(head)}
          #{line(head.map.with_index { |_, index| index.zero? ? "---" : "---:" })}
          #{rows.map { |cells| line(cells) }.join("\n")}
        TEXT
      end

      def row(server, columns, ratios)
        failed = server["failed"].positive? ? " (#{server["failed"]} rounds failed)" : ""
        [
          server["name"],
          *columns.map { |_, name, digits| number(server["medians"][name], digits) },
          *ratios.map { |_, reference, name| number(ratio(server, reference, name), 2) },
          "#{server["medians"]["errors"]}#{failed}"
        ]
      end

      def ratio(server, reference, name) = server.dig("ratios", reference, name)

      def number(value, digits)
        return "–" unless value

        whole, fraction = format("%.#{digits}f", value).split(".")
        [whole.gsub(/(?<=\d)(?=(\d{3})+\z)/, ","), fraction].compact.join(".")
      end

      def line(cells) = "| #{cells.join(" | ")} |"
    end
  end
end
