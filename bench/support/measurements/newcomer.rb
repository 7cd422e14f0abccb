# frozen_string_literal: true

require_relative "load"
require_relative "new_clients"

module Bench
  module Measurements
    # One client that connects, asks once, closes and pauses, beside clients that keep their connections and never pause.
    class Newcomer
      # Milliseconds, on average.
      PAUSE = 50.0
      private_constant :PAUSE

      def kind = "newcomer"

      # @param bed [TestBed]
      # @return [Hash{String => Numeric}] see Load.result and NewClients.figures; `newcomer_requests`
      def run(bed)
        clients = bed.closed_loop(connections: bed.concurrency + 1, new_clients: 1, new_pause_ms: PAUSE)
        clients.for_seconds(bed.warm_up / 2)
        before = bed.tree.cpu_ns
        load = clients.for_seconds(bed.seconds)
        Load.result(bed.tree.cpu_ns - before, load)
            .merge(NewClients.figures(load), "newcomer_requests" => load[:new][:requests])
      end
    end
  end
end
