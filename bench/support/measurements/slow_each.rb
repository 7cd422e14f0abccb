# frozen_string_literal: true

require_relative "served"

module Bench
  module Measurements
    # What slow readers of long streamed bodies cost clients that connect anew.
    class SlowEach
      # Clients that read 1.2 MB of /16m in a second.
      READERS = { readers: 50, path: "/16m", interval_ms: 55, bytes: 65_536 }.freeze
      private_constant :READERS

      def kind = "slow-each"

      # @param bed [TestBed]
      # @return [Hash{String => Numeric}] `p99_alone_ms` and `p99_beside_ms` of new clients without and with the readers, and
      #   `p99_kept`, the one over the other; `broken`, how often the server left a reader; errors; and what Served says
      def run(bed)
        bed.clients.for_seconds(bed.warm_up)
        before = bed.clients.for_seconds(bed.seconds)
        beside, said = bed.beside("trickle", **READERS) do
          # The app makes their bodies.
          bed.clients.for_seconds(bed.warm_up)
          bed.clients.for_seconds(bed.seconds)
        end
        loads = [before, beside, bed.clients.for_seconds(bed.seconds)]
        { **p99(*loads), "broken" => said["broken"], "errors" => loads.sum { |load| load[:errors].values.sum }, **Served.of(*loads) }
      end

      private

      def p99(before, beside, after)
        alone = [before, after].sum { |load| load[:p99_us] } / 2e3
        beside = beside[:p99_us] / 1e3
        { "p99_alone_ms" => alone, "p99_beside_ms" => beside, "p99_kept" => alone.positive? ? beside.fdiv(alone).round(3) : nil }
      end
    end
  end
end
