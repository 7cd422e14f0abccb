# frozen_string_literal: true

require_relative "load"

module Bench
  module Measurements
    # HUP under half of the load that a server can take: lost requests, latencies meanwhile, and the most memory of all processes.
    class Reload
      # Requests that warm the workers up; seconds between two looks at the memory; and the mean pause of each client, as a multiple of
      # the seconds that its request takes while there are no pauses.
      REQUESTS = 2_000
      STEP = 0.2
      PAUSE = 2.0
      private_constant :REQUESTS, :STEP, :PAUSE

      def kind = "reload"

      # @param bed [TestBed]
      # @return [Hash{String => Numeric}] `pss_mb_idle`, `pss_mb_before`, and `pss_mb_most` during the HUP, in MB (10^6 bytes), and `most_to_before`;
      #   `p99_before_ms`, `p99_reload_ms` and their ratio `p99_kept`; `errors`; what Served says; `exchanged`, the workers that are others than before
      def run(bed)
        idle = memory(bed)
        pause = 1e3 * PAUSE * bed.concurrency / rate(bed.clients.for_requests(bed.scaled(REQUESTS)))
        clients = bed.closed_loop(pause_ms: pause)
        before = clients.for_seconds(bed.seconds)
        settled = memory(bed)
        workers = workers_of(bed)
        during, most = watched(bed, clients)
        { "pss_mb_idle" => idle, "pss_mb_before" => settled, "pss_mb_most" => most, "most_to_before" => most.fdiv(settled).round(3),
          **latencies(before, during),
          "errors" => [before, during].sum { |load| load[:errors].values.sum }, **Served.of(before, during), "exchanged" => (workers - workers_of(bed)).size }
      end

      private

      def workers_of(bed) = bed.tree.titled("fastrack worker")
      def memory(bed) = (bed.tree.pss_bytes / 1e6).round(3)
      def rate(load) = load[:in_time] / (load[:duration_us] / 1e6)

      # @return [Array(Hash, Float)] the load, and the most MB meanwhile
      def watched(bed, clients)
        load = Thread.new { clients.for_seconds(bed.seconds) }
        Process.kill(:HUP, bed.tree.titled("fastrack master").first)
        most = memory(bed)
        most = [most, memory(bed)].max until load.join(STEP)
        [load.value, most]
      end

      def latencies(before, during)
        tails = [before, during].map { |load| load[:p99_us] / 1e3 }
        { "p99_before_ms" => tails.first, "p99_reload_ms" => tails.last, "p99_kept" => tails.first.positive? ? tails.last.fdiv(tails.first).round(3) : nil }
      end
    end
  end
end
