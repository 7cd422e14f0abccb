# frozen_string_literal: true

require_relative "refork"

module Bench
  module Measurements
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
        warn File.readlines(bed.file("fastrack.log")).grep(/refork:/)
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
