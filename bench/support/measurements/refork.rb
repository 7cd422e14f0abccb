# frozen_string_literal: true

require_relative "load"
require_relative "successor"

module Bench
  module Measurements
    # A server before `fastrack refork` and after it: PSS of all of its processes, latencies, and what a worker's successor takes. Other
    # servers have no such command.
    class Refork
      # Seconds in which all workers must be forked anew, and between two looks.
      PATIENCE = 180
      STEP = 0.05
      # Seconds of a load, as a multiple of the usual ones.
      STRETCH = 2
      private_constant :PATIENCE, :STEP, :STRETCH

      def kind = "refork"

      # @param requests [Integer] before, and again after
      def initialize(requests)
        @requests = requests
      end

      # @param bed [TestBed]
      # @return [Hash{String => Numeric}] `pss_mb_idle`, `pss_mb_before`, `pss_mb_most` (the most during the refork), `pss_mb_reforked` (nil
      #   for other servers) and `pss_mb_after` in MB
      #   (10^6 bytes); p99 and requests per second of a load before and of the one just after, and the latter's over
      #   the former's (`p99_kept`, `rps_kept`); see Successor; errors, and what Served says
      def run(bed)
        idle = memory(bed)
        loads = [bed.clients.for_requests(bed.scaled(@requests))]
        before = memory(bed)
        loads << timed(bed)
        refork(bed) if (reforks = bed.tree.titled("fastrack master").any?)
        reforked = memory(bed) if reforks
        loads << timed(bed)
        rest = bed.scaled(@requests) - loads.last[:requests]
        loads << bed.clients.for_requests(rest) if rest.positive?
        { "pss_mb_idle" => idle, "pss_mb_before" => before, "pss_mb_most" => reforks ? @most : before, "pss_mb_reforked" => reforked, "pss_mb_after" => memory(bed),
          **kept(*loads[1, 2]), "errors" => loads.sum { |load| load[:errors].values.sum }, **Served.of(*loads), **(reforks ? Successor.new(bed).figures : {}) }
      end

      private

      def timed(bed) = bed.clients.for_seconds(bed.seconds * STRETCH)

      def memory(bed) = (bed.tree.pss_bytes / 1e6).round(3)

      def kept(before, after)
        rates = [before, after].map { |load| load[:in_time] / (load[:duration_us] / 1e6) }
        tails = [before, after].map { |load| load[:p99_us] / 1e3 }
        { "p99_before_ms" => tails.first, "p99_after_ms" => tails.last, "p99_kept" => ratio(*tails), "rps_before" => rates.first.round(1), "rps_kept" => ratio(*rates) }
      end

      def ratio(before, after) = before.positive? ? after.fdiv(before).round(3) : nil

      def refork(bed)
        before = bed.tree.titled("fastrack worker")
        Process.kill(:URG, bed.tree.titled("fastrack master").first)
        deadline = now + PATIENCE
        @most = memory(bed)
        until reforked?(bed, before)
          @most = [@most, memory(bed)].max
          raise "not all workers were forked anew within #{PATIENCE} s" if now > deadline

          sleep STEP
        end
      end

      def reforked?(bed, before)
        workers = bed.tree.titled("fastrack worker")
        bed.tree.titled("fastrack mold").size == 1 && workers.size == before.size && (workers & before).empty? && settled?(bed)
      end

      # Whether what was replaced has ended: the first successor is the master's, all others the mold's.
      def settled?(bed)
        found = bed.tree.pids
        return @found_at <= now - 1 if found == @found

        @found = found
        @found_at = now
        false
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    # What a refork saves, and for how long: PSS of all processes when idle, before it, after it, and after some more requests. Without a
    # refork the same, of a server that answers as many.
    class ReforkLasts < Refork
      # @param before [Integer] requests
      # @param after [Array<Integer>] requests since, ascending
      # @param reforks [Boolean]
      def initialize(before, after, reforks:)
        super(before)
        @after = after
        @reforks = reforks
      end

      # @param bed [TestBed]
      # Writes to stderr what the server has logged of it.
      #
      # @return [Array<String>] MB (10^6 bytes), with a star where there was a mold and is none any more; then how many requests failed
      def run(bed)
        @failed = 0
        figures = [figure(bed)]
        ask(bed, @requests)
        figures << figure(bed)
        refork(bed) if @reforks
        figures << figure(bed, reforked: @reforks)
        [0, *@after].each_cons(2) do |from, to|
          ask(bed, to - from)
          figures << figure(bed, reforked: @reforks)
        end
        warn File.readlines(bed.log).grep(/refork:/)
        [*figures, @failed.to_s]
      end

      private

      # Clients stop after a time, too: on a busy machine before they have asked so often.
      def ask(bed, requests)
        while requests.positive?
          load = bed.clients.for_requests(requests)
          raise RunningServer::Failed, "no request was answered" unless load[:requests].positive?

          requests -= load[:requests]
          @failed += load[:errors].values.sum
        end
      end

      def figure(bed, reforked: false)
        "#{memory(bed).round}#{"*" if reforked && bed.tree.titled("fastrack mold").empty?}"
      end
    end
  end
end
