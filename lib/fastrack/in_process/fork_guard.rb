# frozen_string_literal: true

require_relative "../process/guards"

module Fastrack
  module ForkGuard
    # Guards servers inside this process, beside whatever else the process is.
    module Servers
      # @param server [#descriptors]
      def add(server)
        # Others may fork in the middle of this: they see an Array as it was, or as it will be.
        @servers = [*@servers, server]
        process = Process.singleton_class
        [ForkGuard, Daemon].each { |guard| process.prepend(guard) unless process < guard }
      end

      # @param server [#descriptors]
      def remove(server)
        @servers = @servers.reject { |one| one.equal?(server) }
      end

      # @yield to daemon(3), which goes on in a child
      def daemonize(&fork) = from_engines(&fork).tap { let_go }

      def uninstall
        super
        @servers = []
      end

      private

      def descriptors
        super + (@servers || []).flat_map(&:descriptors)
      end
    end

    # Process.daemon does not fork by Process._fork.
    module Daemon
      def daemon(*how) = ForkGuard.daemonize { super(*how) }
    end

    singleton_class.prepend(Servers)
  end
end
