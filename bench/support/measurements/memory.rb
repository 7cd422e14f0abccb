# frozen_string_literal: true

require_relative "load"

module Bench
  module Measurements
    # PSS of all of a server's processes after some numbers of requests.
    class Memory
      # @param after [Array<Integer>] numbers of requests, rising
      def initialize(after)
        @after = after
      end

      def kind = "memory"

      # @param bed [TestBed]
      # @return [Hash{String => Numeric}] `pss_mb_after_N` in MB (10^6 bytes), errors, and what Served says
      def run(bed)
        done = 0
        loads = []
        sizes = @after.to_h do |target|
          requests = bed.scaled(target)
          loads << bed.clients.for_requests(requests - done)
          done = requests
          ["pss_mb_after_#{target}", (bed.tree.pss_bytes / 1e6).round(3)]
        end
        sizes.merge("errors" => loads.sum { |load| load[:errors].values.sum }, **Served.of(*loads))
      end
    end
  end
end
