# frozen_string_literal: true

require "json"
require_relative "../memory/process_memory"

module Fastrack
  module Tune
    # A forecast as text, and as JSON.
    class Report
      # @return [Forecast]
      attr_reader :forecast

      def initialize(forecast)
        @forecast = forecast
      end

      def text
        [measurements, "", table, "", recommendation, "", paste].flatten.join("\n")
      end

      def json
        chosen = @forecast.recommendation
        JSON.pretty_generate(
          memory_limit: @forecast.memory.bytes, cpus: @forecast.cpus, load: @forecast.load.round(2),
          measured: @forecast.measured.map { |threads, result| { threads: threads, **result.to_h.except(:latencies) } },
          by_memory: @forecast.by_memory, by_cpus: @forecast.by_cpus, rows: @forecast.rows.map(&:to_h),
          recommendation: { max_workers: chosen.workers, max_threads: chosen.threads }
        )
      end

      private

      def bytes(number)
        ProcessMemory.format(number)
      end

      def time(seconds)
        return "overloaded" if seconds.nil?

        seconds < 1 ? "#{(seconds * 1000).round(seconds < 0.01 ? 1 : 0)} ms" : "#{seconds.round(1)} s"
      end

      def measurements
        @forecast.measured.flat_map do |threads, result|
          failures = "; #{result.failures} FAILED" if result.failures.positive?
          ["measured with 2 workers#{" of #{threads} threads" if threads > 1}: #{result.requests} requests#{failures}",
           "  master, with what workers share   #{bytes(result.shared)}",
           "  a worker's own memory             #{bytes(result.start)} at the start, #{bytes(result.warm)} warm, #{bytes(result.loaded)} at the end " \
           "(#{bytes(result.growth)} per 1,000 requests)",
           "  a request                         #{time(result.cpu)} of CPU, #{time(result.waiting)} of waiting"]
        end
      end

      def table
        head = format("%<w>8s%<t>9s%<m>12s%<r>13s%<p50>12s%<p99>12s", w: "workers", t: "threads", m: "memory", r: "requests/s", p50: "p50", p99: "p99")
        ["at #{@forecast.load.round} requests/s, on #{format("%.4g", @forecast.cpus)} CPUs and #{@forecast.memory}:", head] +
          @forecast.rows.map { |row| line(row) }
      end

      def line(row)
        mark = row == @forecast.recommendation ? "  <-" : ""
        format("%<w>8d%<t>9d%<m>12s%<r>13d%<p50>12s%<p99>12s%<note>s", w: row.workers, t: row.threads, m: bytes(row.memory), r: row.rate.round,
               p50: time(row.p50), p99: time(row.p99), note: row.fits ? mark : "  does not fit#{mark}")
      end

      def recommendation
        chosen = @forecast.recommendation
        target = @forecast.target
        missed = target && (chosen.p99.nil? || chosen.p99 > target)
        ["#{chosen.workers} worker#{"s" unless chosen.workers == 1}#{" of #{chosen.threads} threads" if chosen.threads > 1}: the memory allows #{@forecast.by_memory}, " \
         "the CPUs #{@forecast.by_cpus} (requests compute #{(@forecast.computing * 100).round} % of their time)",
         *("no number that fits keeps p99 within #{time(target)}" if missed),
         *("not even one worker fits into #{@forecast.memory}" unless chosen.fits)]
      end

      def paste
        chosen = @forecast.recommendation
        lines = ["config/fastrack.rb:", "  max_workers #{chosen.workers}", *("  max_threads #{chosen.threads}" if chosen.threads > 1)]
        [*lines, "or in the environment:", "  WEB_CONCURRENCY=#{chosen.workers}#{" RAILS_MAX_THREADS=#{chosen.threads}" if chosen.threads > 1}"]
      end
    end
  end
end
