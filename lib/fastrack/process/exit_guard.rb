# frozen_string_literal: true

module Fastrack
  # Has something done before this process ends by `exit!`, which runs no at_exit hooks.
  module ExitGuard
    # Process.exit! and Kernel.exit!
    module Public
      # @param status see Process.exit!
      def exit!(*status)
        ExitGuard.leave(status)
        super
      end
    end

    # exit! without a receiver
    module Private
      private

      def exit!(*status)
        ExitGuard.leave(status)
        super
      end
    end

    @pid = nil

    class << self
      # @yield before the end of this process, and of none that it forks
      def install(&work)
        @work = work
        @pid = Process.pid
        return if Kernel < Private

        [Process, Kernel].each { |one| one.singleton_class.prepend(Public) }
        Kernel.prepend(Private)
      end

      # @param status [Array] exit!'s arguments: with wrong ones it raises
      def leave(status)
        @work.call if @pid == Process.pid && (status in [] | [true | false | Integer])
      end
    end
  end
end
