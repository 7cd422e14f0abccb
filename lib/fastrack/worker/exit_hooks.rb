# frozen_string_literal: true

module Fastrack
  # Blocks of Kernel#at_exit in hooks that each worker runs, such as after_fork. The workers of a mold inherit the blocks that the mold has
  # set as a worker, and run the hooks, too. So such a block runs only in the worker that has set it, and in forked children of that worker.
  module ExitHooks
    class << self
      # Called in the master, and in a generation 0 that is a program of its own.
      def install
        return if @installed

        @installed = true
        Kernel.singleton_class.prepend(self)
        Kernel.prepend(Module.new { private def at_exit(&block) = super(&ExitHooks.bound(block)) })
      end

      # Called when a worker begins.
      def begin_worker
        @worker = Object.new
      end

      # Runs a hook.
      def during
        @owner = @worker
        yield
      ensure
        @owner = nil
      end

      # @param block [Proc, nil]
      # @return [Proc, nil] the block that Ruby is to call
      def bound(block)
        owner = @owner or return block
        -> { block.call if @worker.equal?(owner) }
      end
    end

    # Kernel.at_exit.
    def at_exit(&block) = super(&ExitHooks.bound(block))
  end
end
