# frozen_string_literal: true

module Bench
  module Measurements
    # What connections cost on which nothing happens.
    class IdleConnections
      # The other traffic.
      OTHERS = { connections: 16, pause_ms: 5.0 }.freeze
      # Seconds in which all connections should have been made. puma 5 waits up to 0.2 s for the next request on each, and
      # comes to as many as that allows.
      MAKING = 8
      private_constant :OTHERS, :MAKING

      # @param connections [Integer]
      def initialize(connections)
        @connections = connections
      end

      def kind = "idle"

      # @param bed [TestBed]
      # @return [Hash{String => Numeric}] `held` connections (`possible` are as many as the limit of descriptors lets
      #   the clients have), of which `still_open` in the end; `bytes_each`, growth of the server's PSS; `idle_cpu_us`
      #   per second without any request, with and without them; p99 of other traffic with and without them; errors
      def run(bed)
        # The heaps settle first: their growth is no connection's.
        bed.wrk.for_seconds(bed.warm_up)
        alone_cpu = idle_cpu(bed)
        before = others(bed)
        pss = bed.tree.pss_bytes
        connections = bed.scaled(@connections)
        beside, left = bed.beside("hold", connections: connections, seconds: MAKING) { |there| measure(bed, there, pss) }
        after = others(bed)
        alone = [before, after].sum { |load| load[:p99_us] } / 2e3
        errors = [before, after].sum { |load| load[:errors].values.sum }
        beside.merge(left, "idle_cpu_alone_us" => alone_cpu, "p99_alone_ms" => alone,
                           "p99_kept" => alone.positive? ? beside["p99_beside_ms"].fdiv(alone).round(3) : nil,
                           "errors" => beside["errors"] + errors)
      end

      private

      def measure(bed, there, pss)
        held = there["held"]
        each = (bed.tree.pss_bytes - pss).fdiv(held).round(1) if held.positive?
        cpu = idle_cpu(bed)
        load = others(bed)
        there.merge("bytes_each" => each, "idle_cpu_us" => cpu, "p99_beside_ms" => load[:p99_us] / 1e3,
                    "errors" => there["failed"] + load[:errors].values.sum)
      end

      def others(bed) = bed.closed_loop(**OTHERS).for_seconds(bed.seconds)

      # Microseconds of CPU time per second, while nobody asks for anything.
      def idle_cpu(bed)
        before = bed.tree.cpu_ns
        sleep(bed.seconds)
        ((bed.tree.cpu_ns - before) / 1e3 / bed.seconds).round(1)
      end
    end
  end
end
