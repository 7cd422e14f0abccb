# frozen_string_literal: true

module Bench
  module Measurements
    # The growth of a server's memory for a while, sampled.
    module Peak
      # Seconds between two looks, each of which takes the kernel milliseconds.
      STEP = 0.05
      private_constant :STEP

      # @param bed [TestBed]
      # @yield while which it is looked at
      # @return [Float, nil] the most PSS of all processes less what it was before, over what a worker had for itself on average; nil
      #   without workers
      def self.of(bed)
        before = most = bed.tree.pss_bytes
        own = bed.tree.titled("fastrack worker").map { |pid| ProcessTree.own_bytes(pid) }.select(&:positive?)
        over = false
        looks = Thread.new do
          until over
            most = [most, bed.tree.pss_bytes].max
            sleep STEP
          end
        end
        yield
        (most - before).fdiv(own.sum.fdiv(own.size)).round(2) if own.any?
      ensure
        over = true
        looks&.join
      end
    end
  end
end
