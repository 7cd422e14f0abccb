# frozen_string_literal: true

module Fastrack
  # What Ruby tells of its garbage collector. These names are not promised: they come and go from one version to the next, and with the
  # collector that is in use. One that is not there is what the caller gives for it.
  module GCFigures
    # What GC.stat and the like raise for a name that they do not have, and where there is no such method.
    UNKNOWN = [ArgumentError, NoMethodError, NotImplementedError, TypeError].freeze

    module_function

    # @param key [Symbol] of GC.stat
    def stat(key, otherwise = 0)
      GC.stat(key) || otherwise
    rescue *UNKNOWN
      otherwise
    end

    # @param key [Symbol] of GC.latest_gc_info
    def latest(key, otherwise = nil)
      GC.latest_gc_info(key) || otherwise
    rescue *UNKNOWN
      otherwise
    end

    # @param keys [Array<Symbol>]
    # @yieldreturn [Hash] what a method of GC tells
    # @return [Boolean] whether all of them are there
    def tells?(*keys)
      (keys - yield.keys).empty?
    rescue *UNKNOWN
      false
    end

    # @return [Integer] nanoseconds of all collections; 0 where they are not measured
    def time
      GC.total_time
    rescue *UNKNOWN
      0
    end
  end
end
