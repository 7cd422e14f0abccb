# frozen_string_literal: true

require "json"
require_relative "../log"
require_relative "../memory/auto_workers"
require_relative "../memory/limit"
require_relative "load"
require_relative "other_load"

module Fastrack
  module Tune
    # The measured figures as a table, and one advice, as text or JSON.
    class Report
      # @param measured [Hash{Integer => Trial::Result}] by the number of threads per worker, 1 among them
      # @param memory [MemoryLimit]
      # @param cpus [Float]
      def initialize(measured, memory:, cpus:)
        @measured = measured
        @memory = memory
        @cpus = cpus
      end

      def text = ["measured with #{Trial::WORKERS} workers:", *table, *doubts, "", advice, "", paste].flatten.join("\n")

      def json
        JSON.pretty_generate(
          memory_limit: @memory.bytes, cpus: @cpus,
          measured: @measured.map { |threads, result| { threads: threads, **result.to_h, answers: counted(result) } },
          by_memory: by_memory, by_cpus: by_cpus, recommendation: { max_workers: workers, max_threads: threads }
        )
      end

      private

      def single = @measured.fetch(1)

      def computing = WorkerCount.computing(single.cpu, single.cpu + single.waiting)

      # Workers of one thread that the CPUs allow.
      def by_cpus = WorkerCount.by_cpus(@cpus, computing)

      # Workers of one thread that the memory allows.
      def by_memory = fitting(single)

      def fitting(result) = WorkerCount.by_memory(@memory.bytes, rest: result.shared, own: result.loaded)

      # Several threads are advised if the memory allows too few workers of one thread to keep the CPUs busy.
      def threads = by_memory < by_cpus ? @measured.keys.max : 1

      # A worker of several threads does as much as that number of workers, but never computes on more than one CPU.
      def workers
        needed = [(by_cpus / threads.to_f).ceil, [@cpus.floor, by_cpus].min].max
        [needed, fitting(@measured.fetch(threads))].min.clamp(1..)
      end

      def table
        rows = { "threads per worker" => @measured.keys.map(&:to_s) }
        columns = @measured.values.map { |result| figures(result) }
        columns.first.each_key { |name| rows[name] = columns.map { |column| column.fetch(name) } }
        rows.map { |name, cells| format("  %-32s%s", name, cells.map { |cell| cell.rjust(12) }.join) }
      end

      def figures(result)
        {
          "requests" => result.requests.to_s, "failed" => result.failures.to_s, "requests per second" => result.rate.round.to_s,
          "CPU time of a request" => time(result.cpu), "waiting of a request" => time(result.waiting),
          "master, and shared by workers" => bytes(result.shared), "a worker's own: at the start" => bytes(result.start),
          "a worker's own: warm" => bytes(result.warm), "a worker's own: at the end" => bytes(result.loaded),
          "growth per 1,000 requests" => bytes(result.growth)
        }
      end

      def bytes(number) = ProcessMemory.format(number)

      def time(seconds)
        seconds < 1 ? "#{(seconds * 1000).round(seconds < 0.01 ? 1 : 0)} ms" : "#{seconds.round(1)} s"
      end

      # Reasons not to believe the figures.
      def doubts
        results = @measured.values
        others = results.map(&:others).max
        [*results.flat_map { |result| failures(result) }.uniq, *(busy(others) if others >= OtherLoad.machine * OtherLoad::REPORTED_SHARE)]
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

      def advice
        ["#{Log.count(workers, "worker")}#{" of #{threads} threads" if threads > 1}: " \
         "the memory (#{@memory}) allows #{by_memory}#{" of one thread" if threads > 1}, " \
         "#{format("%.4g", @cpus)} CPUs #{by_cpus} (requests compute #{(computing * 100).round} % of their time)",
         *("not even one worker fits into #{@memory}" if fitting(@measured.fetch(threads)).zero?)]
      end

      def paste
        lines = ["config/fastrack.rb:", "  max_workers #{workers}", *("  max_threads #{threads}" if threads > 1)]
        [*lines, "or in the environment:", "  WEB_CONCURRENCY=#{workers}#{" RAILS_MAX_THREADS=#{threads}" if threads > 1}"]
      end
    end
  end
end
