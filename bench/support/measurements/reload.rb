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

      # @return [Hash{String => Numeric}] RELOAD of report/columns.rb; errors, and what Served says
      def run(bed)
        idle = bed.tree.pss_mb
        pause = 1e3 * PAUSE * bed.concurrency / Load.rate(bed.clients.for_requests(bed.scaled(REQUESTS)))
        clients = bed.closed_loop(pause_ms: pause)
        before = clients.for_seconds(bed.seconds)
        settled = bed.tree.pss_mb
        workers = workers_of(bed)
        during, most = watched(bed, clients)
        { "pss_mb_idle" => idle, "pss_mb_before" => settled, "pss_mb_most" => most, "most_to_before" => most.fdiv(settled).round(3),
          **Load.p99("p99_before_ms" => before, "p99_reload_ms" => during),
          "errors" => Load.errors(before, during), **Served.of(before, during), "exchanged" => (workers - workers_of(bed)).size }
      end

      private

      def workers_of(bed) = bed.tree.titled("fastrack worker")

      # @return [Array(Hash, Float)] the load, and the most MB meanwhile
      def watched(bed, clients)
        load = Thread.new { clients.for_seconds(bed.seconds) }
        Process.kill(:HUP, bed.tree.titled("fastrack master").first)
        most = bed.tree.pss_mb
        most = [most, bed.tree.pss_mb].max until load.join(STEP)
        [load.value, most]
      end
    end
  end
end
