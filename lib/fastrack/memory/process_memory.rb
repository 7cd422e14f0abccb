# frozen_string_literal: true

require "etc"

module Fastrack
  # What processes take of the memory, in bytes (proc(5)).
  class ProcessMemory
    PAGE = Etc.sysconf(Etc::SC_PAGESIZE)

    class << self
      # Whether this system tells.
      def known?
        File.readable?("/proc/self/statm")
      end

      # Cheap: the kernel keeps these figures.
      #
      # @param pid [Integer, String]
      # @return [Array(Integer, Integer)] what is in memory, and what of it is anonymous; zeros for one that is gone
      def resident(pid)
        _, resident, shared = File.read("/proc/#{pid}/statm").split.map { |pages| pages.to_i * PAGE }
        [resident, resident - shared]
      rescue SystemCallError
        [0, 0]
      end

      # Dear: the kernel walks all of its pages, which takes milliseconds for 100 MB, where #resident takes microseconds. A page that several processes share counts in parts for each.
      #
      # @return [ProcessMemory]
      def of(pid)
        found = File.read("/proc/#{pid}/smaps_rollup").scan(/^(\w+): +(\d+) kB/).to_h.transform_values { |kb| kb.to_i * 1024 }
        swap = found.fetch("SwapPss", 0)
        new(found.fetch("Pss") + swap, found.fetch("Private_Clean") + found.fetch("Private_Dirty") + swap)
      rescue SystemCallError, KeyError
        # It is gone; or it runs as another user, and this one may not look (ptrace(2), access mode checking).
        anonymous = resident(pid).last
        new(anonymous, anonymous)
      end

      # @return [String] for the log
      def format(bytes)
        bytes >= 10 * 1024**2 ? "#{(bytes / 1024.0**2).round} MB" : "#{(bytes / 1024.0**2).round(1)} MB"
      end
    end

    # @return [Integer] its own pages, and its share of the others (PSS), swap included
    attr_reader :pss
    # @return [Integer] its own pages: what its end sets free, and what one more like it takes
    attr_reader :private

    def initialize(pss, own)
      @pss = pss
      @private = own
    end
  end
end
