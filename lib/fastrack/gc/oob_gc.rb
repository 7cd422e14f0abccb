# frozen_string_literal: true

require_relative "figures"

module Fastrack
  # Out-of-band garbage collection: runs after a response has left, rather than during the next request.
  #
  # Before Ruby 3.4 it is a full collection every OobGCInterval requests, as in Rhebok. Since Ruby 3.4 Ruby can be told to leave
  # full marks to us. Then there is a minor collection every OobGCInterval requests, and a full one only when Ruby says that it
  # is due and no client waits. A worker that always has clients must not grow without bound: a due full mark is put off
  # for as many requests as lie between two collections at most.
  #
  # GC.start also collects after the app has called GC.disable, which stays in force.
  class OobGC
    # Whether Ruby can leave full marks to us, and says when one is due.
    DEFERRABLE = GCFigures.tells?(:rgengc_allow_full_mark) { GC.config } && GCFigures.tells?(:need_major_by) { GC.latest_gc_info }

    # @param interval [Integer] requests between two collections
    # @param waiting [#call] whether a client waits
    # @param others [#call] whether other threads have requests
    # @return [#call] for after each response
    def self.start(interval, waiting, others = -> { false })
      return Scheduled.new(interval, others) unless DEFERRABLE

      GC.config(rgengc_allow_full_mark: false)
      Deferred.new(interval, waiting, GC, others)
    end

    # Full collections on schedule.
    class Scheduled
      def initialize(interval, others = -> { false })
        @interval = interval
        @others = others
        @responses = 0
      end

      def call
        @responses += 1
        return if @responses < @interval || @others.call

        @responses = 0
        GC.start
      end
    end

    # Full marks when due (Ruby >= 3.4).
    class Deferred
      # @param collector [#start, #latest_gc_info] another one in tests
      def initialize(interval, waiting, collector = GC, others = -> { false })
        @interval = interval
        @others = others
        @waiting = waiting
        @collector = collector
        @responses = 0
        @put_off = 0
      end

      def call
        @responses += 1
        return collect_fully if full_mark_due? && (@put_off >= @interval || !(@waiting.call || @others.call))
        return if @responses < @interval || @others.call

        @responses = 0
        @collector.start(full_mark: false)
      end

      private

      def full_mark_due?
        return false unless @collector.latest_gc_info(:need_major_by)

        @put_off += 1
        true
      rescue *GCFigures::UNKNOWN
        false
      end

      def collect_fully
        @responses = @put_off = 0
        @collector.start
      end
    end
  end
end
