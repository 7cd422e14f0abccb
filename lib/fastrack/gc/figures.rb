# frozen_string_literal: true

module Fastrack
  # Figures of Ruby's garbage collector. Their names are not promised: they come and go from one version to the next, and with the
  # collector in use. The caller gives a value for a missing one.
  module GCFigures
    module_function

    # @param key [Symbol] of GC.stat
    def stat(key, otherwise = 0) = ask(otherwise) { GC.stat(key) }

    # @param key [Symbol] of GC.latest_gc_info
    def latest(key, otherwise = nil) = ask(otherwise) { GC.latest_gc_info(key) }

    # @param keys [Array<Symbol>]
    # @yieldreturn [Hash] figures that a method of GC gives
    # @return [Boolean] whether all of them are there
    def tells?(*keys) = ask(false) { (keys - yield.keys).empty? }

    # @yieldreturn the figure. Ruby raises where it lacks the name or the method
    def ask(otherwise)
      yield || otherwise
    rescue ArgumentError, NoMethodError, NotImplementedError, TypeError
      otherwise
    end
    private_class_method :ask
  end
end
