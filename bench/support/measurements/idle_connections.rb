# frozen_string_literal: true

require_relative "../bystanders"
require_relative "load"

module Bench
  module Measurements
    # The cost of connections on which nothing happens.
    class IdleConnections
      # The other traffic.
      OTHERS = { connections: 16, pause_ms: 5.0 }.freeze
      # Seconds in which all connections should have been made. puma 5 waits up to 0.2 s for the next request on each, and
      # comes to as many as that allows.
      MAKING = 8
      private_constant :OTHERS, :MAKING

      def initialize(connections)
        @connections = connections
      end

      def kind = "idle"

      # @return [Hash{String => Numeric}] IDLE of report/columns.rb; errors, and what Served says of both
      def run(bed)
        # The heaps settle first: their growth is no connection's.
        bed.clients.for_seconds(bed.warm_up)
        alone_cpu = idle_cpu(bed)
        before = others(bed)
        pss = bed.tree.pss_bytes
        connections = bed.scaled(@connections)
        (idle, load), there, asked = Bystanders.hold(bed.endpoint, connections, MAKING) { |held| measure(bed, held["held"], pss) }
        loads = [before, load, others(bed)]
        alone = loads.first.merge(p99_us: (loads.first[:p99_us] + loads.last[:p99_us]) / 2)
        there.merge(idle, Load.p99("p99_alone_ms" => alone, "p99_beside_ms" => load), Served.of(*loads, asked),
                    "idle_cpu_alone_us" => alone_cpu, "errors" => there["failed"] + Load.errors(*loads))
      end

      private

      def measure(bed, held, pss)
        each = (bed.tree.pss_bytes - pss).fdiv(held).round(1) if held.positive?
        cpu = idle_cpu(bed)
        [{ "bytes_each" => each, "idle_cpu_us" => cpu }, others(bed)]
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
