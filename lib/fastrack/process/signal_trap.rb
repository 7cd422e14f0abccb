# frozen_string_literal: true

module Fastrack
  # Signal.trap for real-time signals, too. They have no names, and wrappers of gems may take names only: that of debug before 1.8, which
  # Ruby 3.1 and 3.2 bundle, raises NoMethodError for a number. So a number goes to Ruby's own method.
  module SignalTrap
    found = Signal.method(:trap)
    found = found.super_method while found.super_method
    ORIGINAL = found
    private_constant :ORIGINAL

    # @param signal [String, Integer]
    # @param command [String, Proc]
    # @return the previous handler
    def self.trap(signal, command) = signal.is_a?(Integer) ? ORIGINAL.call(signal, command) : Signal.trap(signal, command)
  end
end
