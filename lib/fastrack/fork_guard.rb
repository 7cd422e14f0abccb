# frozen_string_literal: true

module Fastrack
  # Cuts a process that the app forks off the server loose from the server's sockets and pipes: it must not hold clients'
  # connections open, nor the port when the server is gone, nor have workers believe that their master lives. (What the
  # app starts by exec has lost them already.) All of Ruby's forks go through Process._fork, from Ruby 3.1 on.
  module ForkGuard
    # Marks a thread that makes a fork of the server's own.
    OWN = :__fastrack_own_fork
    private_constant :OWN

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

      # For the forks that shall have everything. Their children are guarded as the parent is, until they say otherwise.
      def own_fork
        Thread.current.thread_variable_set(OWN, true)
        yield
      ensure
        Thread.current.thread_variable_set(OWN, nil)
      end

      # In the child of a fork.
      def forked
        own = Thread.current.thread_variable_get(OWN)
        Thread.current.thread_variable_set(OWN, nil)
        return if own

        release = @release
        @release = nil
        release&.call
      end
    end

    # @return [Integer] as fork(2)
    def _fork
      super.tap { |pid| ForkGuard.forked if pid.zero? }
    end
  end
end
