# frozen_string_literal: true

module Fastrack
  # What Ruby tells of its garbage collector. These names are not promised: they come and go from one version to the next, and with the
  # collector that is in use. One that is not there is what the caller gives for it.
  module GCFigures
    # What GC.stat and the like raise for a name that they do not have, and where there is no such method.
    UNKNOWN = [ArgumentError, NoMethodError, NotImplementedError, TypeError].freeze

    module_function

    def ask(otherwise)
      yield || otherwise
    rescue *UNKNOWN
      otherwise
    end

    # @param key [Symbol] of GC.stat
    def stat(key, otherwise = 0) = ask(otherwise) { GC.stat(key) }

    # @param key [Symbol] of GC.latest_gc_info
    def latest(key, otherwise = nil) = ask(otherwise) { GC.latest_gc_info(key) }

    # @return [Boolean] whether GC.latest_gc_info has it
    def latest?(key) = ask(false) { GC.latest_gc_info.key?(key) }

    # @param keys [Array<Symbol>] of GC.stat
    # @return [Boolean]
    def stats?(*keys) = ask(false) { (keys - GC.stat.keys).empty? }

    # @param keys [Array<Symbol>] of the pools of GC.stat_heap
    # @return [Boolean]
    def pools?(*keys) = ask(false) { (keys - GC.stat_heap(0).keys).empty? }

    # @param key [Symbol] of GC.config
    # @return [Boolean]
    def config?(key) = ask(false) { GC.config.key?(key) }
  end
end
