# frozen_string_literal: true

require_relative "columns"

module Bench
  module Report
    # A run's results as tables for people.
    class Markdown
      # Columns of every workload: clients that never waited for longer than a second, and the longest wait.
      SERVED = ["clients served every second", "longest gap ms"].freeze
      private_constant :SERVED

      # @param results [Hash] as Campaign gives them
      def initialize(results)
        @results = results
      end

      def document = "#{head}\n#{tables}"

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
            Linux #{machine["kernel"]}; #{machine["nginx"]}
        TEXT
      end

      def section(workload)
        servers = workload["servers"]
        columns = Columns.figures(workload["kind"])
        ratios = Columns.ratios(workload["kind"]).select { |_, reference, name| servers.any? { |server| ratio(server, reference, name) } }
        head = ["", *columns.map(&:first), *ratios.map(&:first), *SERVED, "errors"]
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
          *served(server["medians"]), "#{server["medians"]["errors"]}#{failed}"
        ]
      end

      # In the worst round. Where a client was left waiting, it catches the eye.
      def served(figures)
        clients, served = figures.values_at("clients", "clients_served")
        count = served ? "#{number(served, 0)} of #{number(clients, 0)}" : "–"
        [served && served < clients ? "**#{count}**" : count, number(figures["longest_gap_ms"], 0)]
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
