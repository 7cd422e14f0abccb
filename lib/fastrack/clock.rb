# frozen_string_literal: true

module Fastrack
  # Time that nobody sets back.
  module Clock
    # @return [Float] seconds
    def self.now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
