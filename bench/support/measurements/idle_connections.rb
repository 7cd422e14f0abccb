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

      # @param connections [Integer]
      def initialize(connections)
        @connections = connections
      end

      def kind = "idle"

      # @param bed [TestBed]
      # @return [Hash{String => Numeric}] `held` connections, of which `still_open` in the end; `bytes_each`, growth of the server's PSS; `idle_cpu_us`
      #   per second without any request, with and without them; p99 of other traffic with and without them; errors; what
      #   Served says of both
      def run(bed)
        # The heaps settle first: their growth is no connection's.
        bed.clients.for_seconds(bed.warm_up)
        alone_cpu = idle_cpu(bed)
        before = others(bed)
        pss = bed.tree.pss_bytes
        connections = bed.scaled(@connections)
        (idle, load), there, asked = Bystanders.hold(bed.endpoint, connections, MAKING) { |held| measure(bed, held["held"], pss) }
        loads = [before, load, others(bed)]
        errors = there["failed"] + loads.sum { |one| one[:errors].values.sum }
        there.merge(idle, p99(*loads), Served.of(*loads, asked), "idle_cpu_alone_us" => alone_cpu, "errors" => errors)
      end

      private

      def measure(bed, held, pss)
        each = (bed.tree.pss_bytes - pss).fdiv(held).round(1) if held.positive?
        cpu = idle_cpu(bed)
        [{ "bytes_each" => each, "idle_cpu_us" => cpu }, others(bed)]
      end

      def p99(before, beside, after)
        alone = [before, after].sum { |load| load[:p99_us] } / 2e3
        beside = beside[:p99_us] / 1e3
        { "p99_alone_ms" => alone, "p99_beside_ms" => beside,
          "p99_kept" => alone.positive? ? beside.fdiv(alone).round(3) : nil }
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
