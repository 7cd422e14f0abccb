# frozen_string_literal: true

require_relative "load"

module Bench
  module Measurements
    # The first requests of a worker that replaces another, over those of one that has served for a while: forked from the mold, then from
    # the master. The server has one worker from then on.
    class Successor
      # Requests that are looked at, and those in between that make a worker a steady one.
      FIRST = 100
      BETWEEN = 1_000
      # Seconds in which workers must come and go, and for which all processes must have done nothing.
      PATIENCE = 60
      STEP = 0.1
      private_constant :FIRST, :BETWEEN, :PATIENCE, :STEP

      # @param bed [TestBed] with a mold
      def initialize(bed)
        @bed = bed
        @client = bed.closed_loop(connections: 1, pause_ms: nil)
      end

      # @return [Hash{String => Numeric}] `first_from_mold`, `mean_from_mold` and `p99_from_mold`, as multiples of a steady worker's mean, mean
      #   and p99, which are `steady_mean_ms` and `steady_p99_ms`; the same `from_master`
      def figures
        # Of two signals that come at once one may be lost.
        (workers.size - 1).downto(1) { |left| signal(:TTOU, "master") && await { workers.size == left } }
        mold = successor
        steady = steady()
        signal(:KILL, "mold")
        await { @bed.tree.titled("fastrack mold").empty? }
        { "steady_mean_ms" => mean(steady).round(3), "steady_p99_ms" => p99(steady), **over(steady, mold, "from_mold"), **over(steady, successor, "from_master") }
      end

      private

      # @return [Array<Float>] milliseconds of its first requests
      def successor
        before = workers
        signal(:TERM, "worker")
        await { workers.size == 1 && (workers & before).empty? }
        requests
      end

      def steady
        @client.for_requests(@bed.scaled(BETWEEN))
        requests
      end

      def requests
        @client.for_requests(@bed.scaled(FIRST))[:samples].map { |sample| sample.latency_us / 1e3 }
      end

      def over(steady, times, name)
        { "first_#{name}" => times.first.fdiv(mean(steady)).round(2), "mean_#{name}" => mean(times).fdiv(mean(steady)).round(2),
          "p99_#{name}" => p99(times).fdiv(p99(steady)).round(2) }
      end

      def mean(times) = times.sum / times.size

      def p99(times) = Statistics.percentile(times.sort, 99)

      def workers = @bed.tree.titled("fastrack worker")

      def signal(name, kind) = @bed.tree.titled("fastrack #{kind}").each { |pid| Process.kill(name, pid) }

      # A worker that has its title may still run hooks: then the processors have work.
      def await
        Bench.await(PATIENCE, step: STEP) { yield && idle? } or raise "the workers were not as they should be within #{PATIENCE} s"
      end

      def idle?
        before = @bed.tree.cpu_ns
        sleep STEP
        @bed.tree.cpu_ns - before < STEP * 1e9 / 100
      end
    end
  end
end
