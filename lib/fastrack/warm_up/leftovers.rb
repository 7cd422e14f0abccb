# frozen_string_literal: true

require "socket"
require_relative "../error"
require_relative "../log"
require_relative "../text"

module Fastrack
  class WarmUp
    # Connections of the app in the process that forks the workers. Two workers that share one read each other's answers.
    class Leftovers
      SERVICES = { 5432 => "PostgreSQL", 3306 => "MySQL", 6379 => "Redis", 11_211 => "Memcached", 5672 => "RabbitMQ", 9092 => "Kafka", 9200 => "Elasticsearch",
                   27_017 => "MongoDB", 80 => "HTTP", 443 => "HTTPS" }.freeze
      NUMBERS = "/dev/fd"

      class << self
        # @return [Hash{Integer => String}] names of this process's connections, by the sockets' inodes
        def sockets
          Dir.children(NUMBERS).map(&:to_i).each_with_object({}) do |number, found|
            socket = Socket.for_fd(number).tap { |one| one.autoclose = false }
            found[socket.stat.ino] = name(socket)
          rescue SystemCallError, SocketError, ArgumentError
            # No socket, or one without a peer.
            next
          end.compact
        end

        # Closes the connections of each pool, of any role and shard.
        def close_active_record
          return unless defined?(::ActiveRecord::Base.connection_handler)

          pools.each(&:disconnect!)
        rescue StandardError => e
          Log.line("warm-up: Active Record's connections cannot be closed: #{Error.reason(e)}", :warn)
        end

        private

        # @return [String, nil] nil for a pair of sockets
        def name(socket)
          peer = socket.remote_address
          return ("unix:#{Text.printable(peer.unix_path)}" unless peer.unix_path.empty?) if peer.unix?

          service = SERVICES[peer.ip_port]
          "#{peer.inspect_sockaddr}#{" (#{service})" if service}"
        end

        def pools
          handler = ::ActiveRecord::Base.connection_handler
          return handler.connection_pool_list(:all) if ::ActiveRecord.gem_version >= Gem::Version.new("7.1")

          handler.respond_to?(:all_connection_pools) ? handler.all_connection_pools : handler.connection_pool_list
        end
      end

      # Notes the connections of this process that are not the app's.
      def initialize
        @own = Leftovers.sockets
      end

      # @return [Array<String>] names of the app's connections
      def names = Leftovers.sockets.reject { |inode, _| @own.key?(inode) }.values.tally.map { |name, count| count > 1 ? "#{count} to #{name}" : name }
    end
  end
end
