# frozen_string_literal: true

require_relative "figures"

module Fastrack
  # OobGC=true: collects garbage after every so many responses, instead of during the next request.
  #
  # Before Ruby 3.4 these are full collections, as in Rhebok. Ruby 3.4 and later can leave full marks to this class. Then the scheduled
  # collections are minor ones, and a full one is made when Ruby says that it is due and no client waits. A worker that always has clients
  # must not grow without bound: it puts a full mark off for as many requests as lie between two collections, at most.
  #
  # GC.start also collects after the app has called GC.disable, which stays in force.
  class OobGC
    # Whether Ruby can leave full marks to this class, and says when one is due.
    DEFERRABLE = GCFigures.tells?(:rgengc_allow_full_mark) { GC.config } && GCFigures.tells?(:need_major_by) { GC.latest_gc_info }

    # @param interval [Integer] requests between two collections
    # @param waiting [#call] whether a client waits
    # @param others [#call] whether other threads have requests
    # @return [OobGC] to be called after each response
    def self.start(interval, waiting, others)
      GC.config(rgengc_allow_full_mark: false) if DEFERRABLE
      new(interval, waiting, others)
    end

    def initialize(interval, waiting, others, deferrable: DEFERRABLE)
      @interval = interval
      @waiting = waiting
      @others = others
      @deferrable = deferrable
      @responses = @put_off = 0
    end

    def call
      @responses += 1
      return collect if full_mark_due? && (@put_off >= @interval || !(@waiting.call || @others.call))
      return if @responses < @interval || @others.call
      return collect unless @deferrable

      @responses = 0
      GC.start(full_mark: false)
    end

    private

    def full_mark_due?
      return false unless @deferrable && GCFigures.latest(:need_major_by)

      @put_off += 1
      true
    end

    def collect
      @responses = @put_off = 0
      GC.start
    end
  end
end
