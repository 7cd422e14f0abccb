# frozen_string_literal: true

require_relative "../process/cpus"

module Fastrack
  module Tune
    # What numbers of workers and threads would come to, from what was measured with two workers.
    class Forecast
      # Most workers in the table.
      MOST = 32

      # One row: `memory` in bytes, `rate` the most requests per second.
      Row = Struct.new(:workers, :threads, :memory, :fits, :rate, keyword_init: true)

      # @return [Hash{Integer => Trial::Result}] by threads
      attr_reader :measured
      # @return [MemoryLimit]
      attr_reader :memory
      # @return [Float]
      attr_reader :cpus
      # @return [Array<Row>]
      attr_reader :rows

      def initialize(measured, memory:, cpus:)
        @measured = measured
        @memory = memory
        @cpus = cpus
        @rows = measured.flat_map { |threads, result| (1..most).map { |workers| row(workers, threads, result) } }
      end

      # How many workers the memory allows.
      def by_memory
        result = @measured.fetch(1)
        ((@memory.bytes - result.shared) / [result.loaded, 1].max).floor.clamp(0..)
      end

      # How many keep the CPUs busy.
      def by_cpus = CPUs.workers(@cpus, computing)

      # @return [Float] the share of a request's time in which it computes
      def computing
        result = @measured.fetch(1)
        CPUs.share(result.cpu / [result.cpu + result.waiting, 1e-9].max)
      end

      # @return [Row]
      def recommendation
        @recommendation ||= (@measured.size > 1 && threaded) || plain
      end

      private

      # @return [Row]
      def plain = @rows.fetch([by_memory, by_cpus].min.clamp(1, most) - 1)

      # Where too few workers fit to keep the CPUs busy.
      def threaded
        return if plain.workers >= by_cpus

        fitting = @rows.select(&:fits)
        best = fitting.map(&:rate).max or return
        row = fitting.select { |one| one.rate >= best * 0.97 }.min_by { |one| [one.threads, one.workers] }
        row if row.rate > plain.rate * 1.1
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
    end
  end
end
