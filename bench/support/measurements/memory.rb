# frozen_string_literal: true

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
      # @return [Hash{String => Numeric}] `pss_mb_after_N` in MB (10^6 bytes), and errors
      def run(bed)
        done = 0
        @after.each_with_object("errors" => 0) do |target, result|
          requests = bed.scaled(target)
          load = bed.wrk.for_requests(requests - done)
          done = requests
          result["pss_mb_after_#{target}"] = (bed.tree.pss_bytes / 1e6).round(3)
          result["errors"] += load[:errors].values.sum
        end
      end
    end
  end
end
