# frozen_string_literal: true

module Fastrack
  # Cuts a process that the app forks off a worker loose from the server: it must not hold clients' connections open, nor
  # take the worker's signals for its own. (What the app starts by exec has lost both already.) Process._fork is what all
  # of Ruby's forks go through, from Ruby 3.1 on.
  module ForkGuard
    class << self
      # In a worker.
      #
      # @param engine [Engine]
      # @param signals [Array<String>] those that the worker has handlers for
      def install(engine, signals)
        @engine = engine
        @handlers = signals.to_h { |name| [name, current_handler(name)] }
        Process.singleton_class.prepend(self)
      end

      # In the child of a fork.
      def release
        return unless @engine

        @engine.close
        @engine = nil
        # A handler that the app has set meanwhile is left to it.
        @handlers.each { |name, handler| trap(name, "DEFAULT") if current_handler(name).equal?(handler) }
      end

      private

      # trap shows a handler only in exchange for another.
      def current_handler(name)
        handler = trap(name, "DEFAULT")
        trap(name, handler)
        handler
      end
    end

    # @return [Integer] as fork(2)
    def _fork
      super.tap { |pid| ForkGuard.release if pid.zero? }
    end
  end
end
