# frozen_string_literal: true

require_relative "load"
require_relative "successor"

module Bench
  module Measurements
    # What a warm-up before the first fork gives: PSS of all processes when idle and after some requests, and the first request of a worker.
    class WarmBoot
      # A worker's first request, over the mean of a steady one's.
      class First < Successor
        # Workers that are looked at.
        WORKERS = 5
        private_constant :WORKERS

        # @return [Float] the median of some workers'
        def ratio
          (workers.size - 1).downto(1) { |left| signal(:TTOU, "master") && await { workers.size == left } }
          steady = mean(steady())
          Array.new(WORKERS) { successor.first.fdiv(steady) }.sort[WORKERS / 2]
        end
      end

      # @param counts [Array<Integer>] numbers of requests, ascending
      # @param first [Boolean] whether to look at workers' first requests
      def initialize(counts, first:)
        @counts = counts
        @first = first
      end

      # @return [Array<String>] MB (10^6 bytes), then the first request's ratio for Fastrack
      def run(bed)
        figures = [bed.tree.pss_mb.round]
        [0, *@counts].each_cons(2) do |from, to|
          load = bed.clients.for_requests(bed.scaled(to - from))
          raise RunningServer::Failed, "#{Load.errors(load)} requests failed" if Load.errors(load).positive?

          figures << bed.tree.pss_mb.round
        end
        figures << First.new(bed).ratio.round(2) if @first && bed.tree.titled("fastrack master").any?
        figures.map(&:to_s)
      end
    end
  end
end
