# frozen_string_literal: true

require_relative "load"
require_relative "successor"

module Bench
  module Measurements
    # A server before `fastrack refork` and after it: PSS of all of its processes, latencies, and what a worker's successor takes. Other
    # servers have no such command.
    class Refork
      # Seconds in which all workers must be forked anew.
      PATIENCE = 180
      # Seconds of a load, as a multiple of the usual ones.
      STRETCH = 2
      private_constant :PATIENCE, :STRETCH

      def kind = "refork"

      # @param requests [Integer] before, and again after
      def initialize(requests)
        @requests = requests
      end

      # @return [Hash{String => Numeric}] REFORK of report/columns.rb; errors, and what Served says
      def run(bed)
        idle = bed.tree.pss_mb
        loads = [bed.clients.for_requests(bed.scaled(@requests))]
        before = bed.tree.pss_mb
        loads << timed(bed)
        refork(bed) if (reforks = bed.tree.titled("fastrack master").any?)
        reforked = bed.tree.pss_mb if reforks
        loads << timed(bed)
        rest = bed.scaled(@requests) - loads.last[:requests]
        loads << bed.clients.for_requests(rest) if rest.positive?
        { "pss_mb_idle" => idle, "pss_mb_before" => before, "pss_mb_most" => reforks ? @most : before, "pss_mb_reforked" => reforked, "pss_mb_after" => bed.tree.pss_mb,
          **kept(*loads[1, 2]), "errors" => Load.errors(*loads), **Served.of(*loads), **(reforks ? Successor.new(bed).figures : {}) }
      end

      private

      def timed(bed) = bed.clients.for_seconds(bed.seconds * STRETCH)

      def kept(before, after)
        rates = [before, after].map { |load| Load.rate(load) }
        { **Load.p99("p99_before_ms" => before, "p99_after_ms" => after), "rps_before" => rates.first.round(1), "rps_kept" => Statistics.ratio(*rates.reverse) }
      end

      def refork(bed)
        before = bed.tree.titled("fastrack worker")
        Process.kill(:URG, bed.tree.titled("fastrack master").first)
        @most = 0
        reforked = Bench.await(PATIENCE) do
          @most = [@most, bed.tree.pss_mb].max
          reforked?(bed, before)
        end
        raise "not all workers were forked anew within #{PATIENCE} s" unless reforked
      end

      def reforked?(bed, before)
        workers = bed.tree.titled("fastrack worker")
        bed.tree.titled("fastrack mold").size == 1 && workers.size == before.size && (workers & before).empty? && settled?(bed)
      end

      # Whether what was replaced has ended: the first successor is the master's, all others the mold's.
      def settled?(bed)
        found = bed.tree.pids
        return @found_at <= Bench.now - 1 if found == @found

        @found = found
        @found_at = Bench.now
        false
      end
    end

    # What a refork saves, and for how long: PSS of all processes when idle, before it, after it, and after some more requests. Without a
    # refork the same, of a server that answers as many.
    class ReforkLasts < Refork
      # @param after [Array<Integer>] numbers of requests since, ascending
      def initialize(before, after, reforks:)
        super(before)
        @after = after
        @reforks = reforks
      end

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
          @failed += Load.errors(load)
        end
      end

      def figure(bed, reforked: false)
        "#{bed.tree.pss_mb.round}#{"*" if reforked && bed.tree.titled("fastrack mold").empty?}"
      end
    end
  end
end
