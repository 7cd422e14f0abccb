# frozen_string_literal: true

module Fastrack
  module Tune
    # What numbers of workers and threads would come to, from what was measured with two workers.
    class Forecast
      # Requests of a simulation.
      JOBS = 5000

      # The rate at which times are compared, as a share of what the best row can do. A row that can do less is overloaded.
      LOAD = 0.7

      # Most workers in the table.
      MOST = 32

      # One row: `memory` in bytes, `rate` the most requests per second, `p50` and `p99` in seconds; nil: overloaded.
      Row = Struct.new(:workers, :threads, :memory, :fits, :rate, :p50, :p99, keyword_init: true)

      # @return [Hash{Integer => Trial::Result}] by threads
      attr_reader :measured
      # @return [MemoryLimit]
      attr_reader :memory
      # @return [Float]
      attr_reader :cpus
      # @return [Float, nil] seconds
      attr_reader :target
      # @return [Array<Row>]
      attr_reader :rows

      def initialize(measured, memory:, cpus:, target: nil)
        @measured = measured
        @memory = memory
        @cpus = cpus
        @target = target
        @rows = measured.flat_map { |threads, result| (1..most).map { |workers| row(workers, threads, result) } }
        @rows.each { |row| simulate(row) }
      end

      # How many workers the memory allows.
      def by_memory(result = @measured.fetch(1))
        ((@memory.bytes - result.shared) / [result.loaded, 1].max).floor.clamp(0..)
      end

      # How many the CPUs can keep busy: more, the more they wait.
      def by_cpus
        (@cpus / computing).round.clamp(1..)
      end

      # @return [Float] the share of a request's time in which it computes
      def computing
        result = @measured.fetch(1)
        (result.cpu / [result.cpu + result.waiting, 1e-9].max).clamp(1 / 64.0, 1.0)
      end

      # @return [Row]
      def recommendation
        @recommendation ||= (@target && reaching) || (@measured.size > 1 && threaded) || at(plain, 1)
      end

      # @return [Float] requests per second
      def load
        @load ||= LOAD * (@rows.select(&:fits).map(&:rate).max || @rows.first.rate)
      end

      private

      def plain
        [by_memory, by_cpus].min.clamp(1, most)
      end

      # Where too few workers fit to keep the CPUs busy.
      def threaded
        return if plain >= by_cpus

        fitting = @rows.select(&:fits)
        best = fitting.map(&:rate).max or return
        row = fitting.select { |one| one.rate >= best * 0.97 }.min_by { |one| [one.threads, one.workers] }
        row if row.rate > at(plain, 1).rate * 1.1
      end

      def reaching
        @rows.select { |row| row.fits && row.p99 && row.p99 <= @target }.min_by { |row| [row.workers, row.threads] }
      end

      def at(workers, threads)
        @rows.find { |row| row.workers == workers && row.threads == threads }
      end

      def most
        @most ||= ([[by_memory, by_cpus].min, 2].max + 2).clamp(1, MOST)
      end

      def row(workers, threads, result)
        memory = result.shared + (workers * result.loaded)
        time = result.cpu + result.waiting
        limits = [workers * threads / [time, 1e-6].max, [workers, @cpus].min / [result.cpu, 1e-6].max]
        Row.new(workers: workers, threads: threads, memory: memory, fits: memory <= @memory.bytes, rate: limits.min)
      end

      # A single queue with random arrivals. Requests that share CPUs take longer.
      def simulate(row)
        return if load >= row.rate * 0.98

        times = services(row)
        random = Random.new(1)
        free = Array.new(row.workers * row.threads, 0.0)
        arrived = 0.0
        latencies = Array.new(JOBS) do
          arrived -= Math.log(1 - random.rand) / load
          free.sort!
          ended = [free.first, arrived].max + times.sample(random: random)
          free[0] = ended
          ended - arrived
        end
        row.p50, row.p99 = [0.5, 0.99].map { |share| latencies.sort[(JOBS * share).floor] }
      end

      def services(row)
        result = @measured.fetch(row.threads)
        mean = result.latencies.sum / result.latencies.size
        time = result.cpu + result.waiting
        servers = row.workers * row.threads
        stretch = time / mean * [servers / time / row.rate, 1].max
        result.latencies.map { |latency| latency * stretch }
      end
    end
  end
end
