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

      # @return [Array<Hash{String => Numeric}>] for each turn, see Load.result, and PAGE of report/columns.rb
      def run(bed)
        idle = bed.tree.pss_mb
        clients = bed.closed_loop(threads: [THREADS, bed.concurrency].min)
        clients.for_seconds(bed.warm_up * WARM_UP)
        Turns.each(turns) { turn(bed, clients).merge("pss_mb_idle" => idle, "pss_mb_loaded" => bed.tree.pss_mb) }
      end

      private

      def turn(bed, clients)
        _, result = bed.measure(clients)
        result.merge("p99_to_p50" => Statistics.ratio(result["p99_ms"], result["p50_ms"]))
      end
    end
  end
end
