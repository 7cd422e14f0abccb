# frozen_string_literal: true

module Fastrack
  # Cuts a process that the app forks off the server loose from the server's sockets and pipes: it must not hold clients'
  # connections open, nor the port when the server is gone, nor have workers believe that their master lives. (What the
  # app starts by exec has lost them already.) All of Ruby's forks go through Process._fork, from Ruby 3.1 on.
  module ForkGuard
    @turn = Mutex.new

    class << self
      # Guards this process, in the way that is given and in no other that was given before.
      #
      # @yield in the child of each fork, to let go of everything
      def install(&release)
        @release = release
        Process.singleton_class.prepend(self) unless Process.singleton_class < self
      end

      def uninstall
        @release = nil
      end

      # For a fork of the server's own, whose child shall have everything. Other threads' forks wait until it is done:
      # what it opens and closes meanwhile nobody could close in their children.
      def own_fork(&block)
        @turn.synchronize(&block)
      end

      # @yield to fork(2)
      # @return [Integer] as fork(2)
      def guard(&fork)
        own = @turn.owned?
        pid = own ? yield : in_turn(&fork)
        forked(own) if pid.zero?
        pid
      end

      private

      def in_turn(&fork)
        @turn.synchronize(&fork)
      rescue ThreadError
        # Signal handlers may not wait for a lock.
        fork.call
      end

      # In the child. That of an own fork is guarded as its parent is, until it says otherwise.
      def forked(own)
        @turn = Mutex.new
        return if own

        release = @release
        @release = nil
        release&.call
      end
    end

    # @return [Integer] as fork(2)
    def _fork
      ForkGuard.guard { super }
    end
  end
end
