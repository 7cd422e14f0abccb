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
        Process.singleton_class.prepend(ForkGuard) unless Process.singleton_class < ForkGuard
      end

      # @param server [#descriptors]
      def remove(server)
        @servers = @servers.reject { |one| one.equal?(server) }
      end

      def uninstall
        super
        @servers = []
      end

      private

      def descriptors
        super + (@servers || []).flat_map(&:descriptors)
      end
    end

    singleton_class.prepend(Servers)
  end
end
