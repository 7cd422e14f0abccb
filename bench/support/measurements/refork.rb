# frozen_string_literal: true

require_relative "served"

module Bench
  module Measurements
    # PSS of all of a server's processes: idle, after some requests, after `fastrack refork`, and after as many requests more. Other
    # servers have no such command.
    class Refork
      # Seconds in which all workers must be forked anew, and between two looks.
      PATIENCE = 60
      STEP = 0.05
      private_constant :PATIENCE, :STEP

      def kind = "refork"

      # @param requests [Integer] before, and again after
      def initialize(requests)
        @requests = requests
      end

      # @param bed [TestBed]
      # @return [Hash{String => Numeric}] `pss_mb_idle`, `pss_mb_before`, `pss_mb_reforked` (nil for other servers) and `pss_mb_after` in MB
      #   (10^6 bytes), errors, and what Served says
      def run(bed)
        idle = memory(bed)
        loads = [load(bed)]
        before = memory(bed)
        reforked = memory(bed) if refork(bed)
        loads << load(bed)
        { "pss_mb_idle" => idle, "pss_mb_before" => before, "pss_mb_reforked" => reforked, "pss_mb_after" => memory(bed),
          "errors" => loads.sum { |load| load[:errors].values.sum }, **Served.of(*loads) }
      end

      private

      def load(bed) = bed.clients.for_requests(bed.scaled(@requests))

      def memory(bed) = (bed.tree.pss_bytes / 1e6).round(3)

      # @return [Boolean] whether there was one
      def refork(bed)
        master = titled(bed, "master").first or return false
        before = titled(bed, "worker")
        Process.kill(:URG, master)
        deadline = now + PATIENCE
        until reforked?(bed, before)
          raise "not all workers were forked anew within #{PATIENCE} s" if now > deadline

          sleep STEP
        end
        true
      end

      def reforked?(bed, before)
        workers = titled(bed, "worker")
        titled(bed, "mold").size == 1 && workers.size == before.size && (workers & before).empty? && settled?(bed)
      end

      # Whether what was replaced has ended: the first successor is the master's, all others the mold's.
      def settled?(bed)
        found = bed.tree.pids
        return @found_at <= now - 1 if found == @found

        @found = found
        @found_at = now
        false
      end

      # @return [Array<Integer>] pids of Fastrack's processes of that kind
      def titled(bed, kind)
        bed.tree.pids.select do |pid|
          File.read("/proc/#{pid}/cmdline").start_with?("fastrack #{kind}")
        rescue Errno::ENOENT, Errno::ESRCH
          false
        end
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
