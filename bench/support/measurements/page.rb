# frozen_string_literal: true

require_relative "../turns"

module Bench
  module Measurements
    # Load's figures, and the memory of all of the server's processes before it and after it.
    class Page
      # Of the clients' threads: their own sequences are the same for each server.
      THREADS = 2
      # Times the usual warm-up: each worker has to ask the database for its tables, and to fill its caches.
      WARM_UP = 2
      private_constant :THREADS, :WARM_UP

      def kind = "page"

      # @return [Integer] how many times each server is loaded in turn with the others of a round, while all of them run
      attr_reader :turns

      def initialize(turns: 1)
        @turns = turns
      end

      # @param bed [TestBed]
      # @return [Array<Hash{String => Numeric}>] for each turn, see Load.result; `p99_to_p50`; `pss_mb_idle` and `pss_mb_loaded` in
      #   MB (10^6 bytes)
      def run(bed)
        idle = memory(bed)
        clients = bed.closed_loop(threads: [THREADS, bed.concurrency].min)
        clients.for_seconds(bed.warm_up * WARM_UP)
        Turns.each(turns) { turn(bed, clients).merge("pss_mb_idle" => idle, "pss_mb_loaded" => memory(bed)) }
      end

      private

      def turn(bed, clients)
        _, result = bed.measure(clients)
        tail = result["p99_ms"].fdiv(result["p50_ms"]).round(3) if result["p50_ms"].positive?
        result.merge("p99_to_p50" => tail)
      end

      def memory(bed) = (bed.tree.pss_bytes / 1e6).round(3)
    end
  end
end
