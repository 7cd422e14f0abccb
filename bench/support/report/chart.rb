# frozen_string_literal: true

require "cgi"

module Bench
  module Report
    # A run's results as an SVG: one group of bars for each workload, one bar for each server.
    class Chart
      WIDTH = 760
      LEFT = 130
      BAR = 18
      GAP = 6
      TITLE = 44
      HEAD = 10
      MARGIN = 16
      # Room for the figure at the end of the longest bar.
      FIGURE = 110
      COLOURS = {
        "fastrack" => "#c0392b", "fastrack-oobgc" => "#e08e79", "fastrack-pinned" => "#e08e79", "fastrack-threads" => "#c0392b",
        "limit" => "#9aa5b1"
      }.freeze
      OTHER = "#4a6fa5"
      # What is drawn of which workload, by its name or its kind: measurement, words, unit.
      CPU = ["cpu_us", "CPU per request", "µs"].freeze
      MEASURES = {
        "gc" => ["p99_ms", "99th percentile of latency", "ms"],
        "gc-heap" => ["p99_ms", "99th percentile of latency", "ms"],
        "memory" => ["pss_mb_after_50000", "PSS after 50,000 requests", "MB"],
        "mix" => ["p99_ms", "99th percentile of latency", "ms"],
        "mix-threads" => ["p99_ms", "99th percentile of latency", "ms"],
        "mix-new" => ["p99_new_ms", "99th percentile of latency of those that connect anew", "ms"],
        "newcomer" => ["longest_new_ms", "its longest wait", "ms"],
        "page" => ["p99_ms", "99th percentile of latency", "ms"],
        "profile" => ["p99_ms", "99th percentile of latency", "ms"],
        "memory-threads" => ["pss_mb_after_20000", "PSS after 20,000 requests", "MB"],
        "slow" => ["rps_lost", "requests/s lost to them", "%"],
        "slow-each" => ["p99_beside_ms", "99th percentile of latency beside them", "ms"],
        "overload" => ["left", "clients that left without an answer", "per second"],
        "idle" => ["bytes_each", "user-space memory of each", "bytes"]
      }.freeze
      private_constant(*constants(false))

      # @param results [Hash] as Campaign gives them
      def initialize(results)
        @results = results
      end

      # @return [String] the SVG document
      def svg
        y = MARGIN + HEAD
        groups = @results["workloads"].map do |workload|
          group(workload, y).tap { y += TITLE + (workload["servers"].size * (BAR + GAP)) }
        end
        height = y + MARGIN
        <<~SVG
          <svg xmlns="http://www.w3.org/2000/svg" width="#{WIDTH}" height="#{height}" viewBox="0 0 #{WIDTH} #{height}"
               font-family="sans-serif" font-size="13" role="img">
          <title>Fastrack and other servers, lane #{@results["lane"]}: less is better</title>
          <rect width="#{WIDTH}" height="#{height}" fill="#ffffff"/>
          #{text(MARGIN, MARGIN + 8, head)}
          #{groups.join("\n")}
          </svg>
        SVG
      end

      private

      def head
        ruby = @results["versions"]["ruby"].split.first(2).join(" ")
        "Lane #{@results["lane"]}, #{ruby}; less is better."
      end

      def group(workload, top)
        measure, words, unit = MEASURES[workload["name"]] || MEASURES.fetch(workload["kind"], CPU)
        values = workload["servers"].map { |server| [server["name"], server["medians"][measure]] }
        scale = (WIDTH - LEFT - FIGURE).fdiv([values.filter_map(&:last).max || 0, Float::MIN].max)
        bars = values.map.with_index do |(name, value), index|
          bar(name, value, unit, scale, top + TITLE + (index * (BAR + GAP)))
        end
        title = text(MARGIN, top + 26, "#{workload["title"]}: #{words}", weight: "bold")
        [title, *bars].join("\n")
      end

      def bar(name, value, unit, scale, top)
        middle = top + (BAR / 2) + 5
        width = ((value || 0) * scale).round(1)
        figure = value ? format("%.1f %s", value, unit) : "not measured"
        [
          text(LEFT - 8, middle, name, anchor: "end"),
          %(<rect x="#{LEFT}" y="#{top}" width="#{width}" height="#{BAR}" fill="#{COLOURS.fetch(name, OTHER)}"/>),
          text(LEFT + width + 6, middle, figure)
        ].join("\n")
      end

      def text(left, baseline, words, anchor: "start", weight: "normal")
        attributes = %(x="#{left}" y="#{baseline}" text-anchor="#{anchor}" font-weight="#{weight}" fill="#222222")
        "<text #{attributes}>#{CGI.escapeHTML(words)}</text>"
      end
    end
  end
end
