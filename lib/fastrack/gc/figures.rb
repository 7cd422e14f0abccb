# frozen_string_literal: true

module Fastrack
  # What Ruby tells of its garbage collector. These names are not promised: they come and go from one version to the next, and with the
  # collector that is in use. One that is not there is what the caller gives for it.
  module GCFigures
    module_function

    # @param key [Symbol] of GC.stat
    def stat(key, otherwise = 0) = ask(otherwise) { GC.stat(key) }

    # @param key [Symbol] of GC.latest_gc_info
    def latest(key, otherwise = nil) = ask(otherwise) { GC.latest_gc_info(key) }

    # @param keys [Array<Symbol>]
    # @yieldreturn [Hash] what a method of GC tells
    # @return [Boolean] whether all of them are there
    def tells?(*keys) = ask(false) { (keys - yield.keys).empty? }

    # @return [Integer] nanoseconds of all collections; 0 where they are not measured
    def time = ask(0) { GC.total_time }

    # @yieldreturn what Ruby says. It raises for a name that it does not have, and where there is no such method
    def ask(otherwise)
      yield || otherwise
    rescue ArgumentError, NoMethodError, NotImplementedError, TypeError
      otherwise
    end
    private_class_method :ask
  end
end
