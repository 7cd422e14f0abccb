# frozen_string_literal: true

require "json"
require_relative "../memory/limit"
require_relative "load"
require_relative "other_load"

module Fastrack
  module Tune
    # A forecast as text, and as JSON.
    class Report
      def initialize(forecast)
        @forecast = forecast
      end

      def text = [measurements, *doubts, "", table, "", recommendation, "", paste].flatten.join("\n")

      def json
        chosen = @forecast.recommendation
        JSON.pretty_generate(
          memory_limit: @forecast.memory.bytes, cpus: @forecast.cpus,
          measured: @forecast.measured.map { |threads, result| { threads: threads, **result.to_h, answers: counted(result) } },
          by_memory: @forecast.by_memory, by_cpus: @forecast.by_cpus, rows: @forecast.rows.map(&:to_h),
          recommendation: { max_workers: chosen.workers, max_threads: chosen.threads }
        )
      end

      private

      def bytes(number) = ProcessMemory.format(number)

      def time(seconds)
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

      # What is to be known before the rest is believed.
      def doubts
        results = @forecast.measured.values
        others = results.map(&:others).max
        [*results.flat_map { |result| failures(result) }.uniq, *(busy(others) if others >= OtherLoad.machine * OtherLoad::SHARE)]
      end

      def failures(result)
        failed = result.answers.select { |_, statuses| statuses.keys.any? { |status| Load.failure?(status) } }
        failed.map { |path, statuses| "FAILED: #{Load.describe(path, statuses)}#{": left out" if result.left_out.include?(path)}" }
      end

      def busy(others)
        "BUSY: other processes took #{format("%.1f", others)} of #{OtherLoad.machine} CPUs meanwhile. Measure again when they do not: waiting may be shorter."
      end

      # @return [Hash{String => Hash}] with keys that JSON has
      def counted(result)
        result.answers.transform_values { |statuses| statuses.transform_keys { |status| status || "none" } }
      end

      # The recommended row, and two on either side.
      def table
        workers = @forecast.recommendation.workers
        rows = @forecast.rows.select { |row| (row.workers - workers).abs <= 2 }
        ["on #{format("%.4g", @forecast.cpus)} CPUs and #{@forecast.memory}:", " workers  threads      memory   requests/s", *rows.map { |row| line(row) }]
      end

      def line(row)
        format("%8d%9d%12s%13d%s%s", row.workers, row.threads, bytes(row.memory), row.rate.round, ("  does not fit" unless row.fits),
               ("  <-" if row == @forecast.recommendation))
      end

      def recommendation
        chosen = @forecast.recommendation
        ["#{Log.count(chosen.workers, "worker")}#{" of #{chosen.threads} threads" if chosen.threads > 1}: the memory allows #{@forecast.by_memory}, " \
         "the CPUs #{@forecast.by_cpus} (requests compute #{(@forecast.computing * 100).round} % of their time)",
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
