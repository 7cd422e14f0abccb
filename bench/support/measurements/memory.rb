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

      # @return [Hash{String => Numeric}] `pss_mb_after_N` in MB (10^6 bytes), `growth` from the last but one to the last, errors, and what Served says
      def run(bed)
        done = 0
        loads = []
        sizes = @after.to_h do |target|
          requests = bed.scaled(target)
          loads << bed.clients.for_requests(requests - done)
          done = requests
          ["pss_mb_after_#{target}", bed.tree.pss_mb]
        end
        sizes.merge("growth" => sizes.values.last.fdiv(sizes.values[-2]).round(3), "errors" => Load.errors(*loads), **Served.of(*loads))
      end
    end
  end
end
