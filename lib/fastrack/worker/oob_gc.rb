# frozen_string_literal: true

module Fastrack
  # Out-of-band garbage collection: called after a response has left and its connection is out of the way, it collects
  # then rather than during the next request.
  #
  # Rubies before 3.4 collect fully every so many requests, as Rhebok did. From 3.4 on the collector can be told to make
  # no full mark of its own accord: every so many requests there is a collection of young objects, and a full one only
  # when Ruby says that it is due, as soon as no client waits. A worker that clients always wait for must not grow without
  # bound, so a due mark is put off for at most as many requests as lie between two collections.
  #
  # GC.start collects where an app has called GC.disable too, and leaves it disabled.
  class OobGC
    # Whether this Ruby can be told to leave full marks to us.
    DEFERRABLE = GC.respond_to?(:config) && GC.config.key?(:rgengc_allow_full_mark)

    # @param interval [Integer] requests between two collections
    # @param waiting [#call] whether a client waits
    # @return [#call] to be called after each response
    def self.start(interval, waiting)
      return Scheduled.new(interval) unless DEFERRABLE

      GC.config(rgengc_allow_full_mark: false)
      Deferred.new(interval, waiting)
    end

    # A full collection each time.
    class Scheduled
      def initialize(interval)
        @interval = interval
        @responses = 0
      end

      def call
        @responses += 1
        return if @responses < @interval

        @responses = 0
        GC.start
      end
    end

    # Full marks when they are due (Ruby >= 3.4).
    class Deferred
      # @param collector [#start, #latest_gc_info] Ruby's, except in tests
      def initialize(interval, waiting, collector = GC)
        @interval = interval
        @waiting = waiting
        @collector = collector
        @responses = 0
        @put_off = 0
      end

      def call
        @responses += 1
        return collect_fully if full_mark_due? && (@put_off >= @interval || !@waiting.call)
        return if @responses < @interval

        @responses = 0
        @collector.start(full_mark: false)
      end

      private

      def full_mark_due?
        return false unless @collector.latest_gc_info(:need_major_by)

        @put_off += 1
        true
      end

      def collect_fully
        @responses = @put_off = 0
        @collector.start
      end
    end
  end
end
