# frozen_string_literal: true

require "cgi"

module Bench
  module Report
    # A run's results as an SVG: one group of bars for each workload, one bar for each server. Less is better.
    class Chart
      WIDTH = 760
      LEFT = 130
      LINE = 24
      # For the longest bar's figure.
      FIGURE = 110
      # The chart draws the first of these that was measured.
      MEASURES = { "longest_new_ms" => "its longest wait, ms", "p99_ms" => "99th percentile of latency, ms", "pss_mb_after_50000" => "PSS after 50,000 requests, MB",
                   "bytes_each" => "user-space memory of each, bytes", "p99_after_ms" => "99th percentile of latency, ms" }.freeze
      private_constant(*constants(false))

      # @param results [Hash] as Campaign gives them
      def initialize(results)
        @results = results
      end

      def svg
        @bottom = 2 * LINE
        head = text(16, "Lane #{@results["lane"]}, #{@results["versions"]["ruby"].split.first(2).join(" ")}; less is better.")
        drawn = @results["workloads"].flat_map { |workload| group(workload) }
        <<~SVG
          <svg xmlns="http://www.w3.org/2000/svg" width="#{WIDTH}" height="#{@bottom}" font-family="sans-serif" font-size="13" role="img">
          <rect width="#{WIDTH}" height="#{@bottom}" fill="#ffffff"/>
          #{[head, *drawn].join("\n")}
          </svg>
        SVG
      end

      private

      def group(workload)
        servers = workload["servers"]
        measure = MEASURES.keys.find { |name| servers.any? { |server| server["medians"][name] } } or return []
        @bottom += 2 * LINE
        title = text(16, "#{workload["title"]}: #{MEASURES[measure]}", 'font-weight="bold"')
        values = servers.to_h { |server| [server["name"], server["medians"][measure] || 0] }
        scale = (WIDTH - LEFT - FIGURE).fdiv([*values.values, Float::MIN].max)
        [title, *values.map { |name, value| bar(name, value, (value * scale).round(1)) }]
      end

      def bar(name, value, width)
        @bottom += LINE
        colour = name.start_with?("fastrack") ? "#c0392b" : "#4a6fa5"
        [text(LEFT - 8, name, 'text-anchor="end"'), text(LEFT + width + 6, format("%.1f", value)),
         %(<rect x="#{LEFT}" y="#{@bottom - 32}" width="#{width}" height="18" fill="#{colour}"/>)].join("\n")
      end

      def text(left, words, more = "") = %(<text x="#{left}" y="#{@bottom - 18}" fill="#222222" #{more}>#{CGI.escapeHTML(words)}</text>)
    end
  end
end
