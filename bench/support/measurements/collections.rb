# frozen_string_literal: true

require "json"
require_relative "../client"
require_relative "../request"
require_relative "../statistics"
require_relative "../turns"

module Bench
  module Measurements
    # The cost of garbage collection for requests: latencies up to the 99.9th percentile, CPU time, and what the app of heap.ru
    # says about collections. The latter hardly depends on what else the machine does.
    class Collections
      # Times the usual warm-up, so that the heap has its size.
      WARM_UP = 4
      ASK = Request.new(path: "/gc")
      private_constant :WARM_UP, :ASK

      def kind = "gc-heap"

      # @return [Integer] how many times each server is loaded in turn with the others of a round, while all of them run
      attr_reader :turns

      def initialize(turns: 1)
        @turns = turns
      end

      # @return [Array<Hash{String => Numeric}>] for each turn, see Load.result; GC_HEAP of report/columns.rb; collections and full marks per
      #   1,000 requests
      def run(bed)
        clients = bed.closed_loop
        clients.for_seconds(bed.warm_up * WARM_UP, pauses: false)
        Turns.each(turns) { turn(bed, clients) }
      end

      private

      def turn(bed, clients)
        told = ask(bed)
        load, result = bed.measure(clients)
        latencies = load[:samples].map(&:latency_us).sort
        result.merge("p999_ms" => (Statistics.percentile(latencies, 99.9) || 0) / 1e3, **told(told, ask(bed)))
      end

      def ask(bed)
        JSON.parse(Client.ask(bed.endpoint, ASK).last, symbolize_names: true)
      end

      def told(before, after)
        change = after.merge(before) { |_, now, then_| now - then_ }
        each = ->(name, unit) { (change.fetch(name) * unit).fdiv([change.fetch(:requests), 1].max).round(3) }
        { "gc_share" => each.call(:collected, 100), "full_share" => each.call(:full, 100),
          "gc_in_us" => each.call(:in_requests_ns, 1e-3), "gc_us" => each.call(:ns, 1e-3),
          "collections" => each.call(:collections, 1000), "full_marks" => each.call(:full_marks, 1000) }
      end
    end
  end
end
