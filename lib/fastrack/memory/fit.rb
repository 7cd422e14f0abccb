# frozen_string_literal: true

require_relative "process_memory"

module Fastrack
  # How many workers fit into the memory, as measured in those that have served: (limit - what is not the workers' own) / what
  # one more takes.
  class MemoryFit
    # @return [Integer] workers
    attr_reader :workers
    # @return [Integer] bytes that one more worker takes: what the largest has for itself
    attr_reader :cost

    # @param limit [MemoryLimit]
    # @param used [Integer] bytes of it
    # @param own [Array<Integer>] the bytes that each worker has for itself
    def initialize(limit, used, own)
      @limit = limit
      @used = used
      @cost = own.max
      @rest = [used - own.sum, 0].max
      @workers = ((limit.bytes - @rest) / @cost.to_f).floor.clamp(0..)
    end

    # The figures behind #workers.
    def to_s
      "limit #{@limit}, master and shared #{ProcessMemory.format(@rest)}, each worker #{ProcessMemory.format(@cost)}"
    end
  end
end
