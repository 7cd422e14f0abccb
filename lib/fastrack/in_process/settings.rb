# frozen_string_literal: true

require_relative "../configuration/options"
require_relative "../error"
require_relative "../listener/address"

module Fastrack
  class Server
    # What a server inside another process can be told: the options that concern clients, by their names (`KeepAlive`) or their
    # words (`keep_alive`). It reads neither a ConfigFile nor the environment, which are those of the server that is tested.
    class Settings
      OPTIONS = %i[
        Host Port Path Listen BackLog ReusePort ClientTimeout HeaderTimeout BodyTimeout WriteTimeout KeepAlive KeepAliveTimeout
        KeepAliveRequests MaxBodySize MaxRequestTarget MaxHeaderSize MaxHeaderFields StreamBody ResponseBuffer
        MaxResponseSpool ChunkedTransfer PathInfo EarlyHints LowlevelErrorHandler HandOver GracefulTimeout
      ].map { |name| Option::BY_NAME.fetch(name) }.freeze

      # Only this machine's clients, and any free port. Nothing ends a worker here, because that would be this process.
      DEFAULTS = { Host: "127.0.0.1", Port: 0, RequestTimeout: 0.0, WorkerTimeout: 0.0 }.freeze

      include Option::Readers

      # @param given [Hash{Symbol => Object}]
      # @raise [ConfigurationError]
      def initialize(given)
        chosen = given.reject { |_, value| value.nil? }.to_h do |key, value|
          option = find(key)
          [option.name, option.coerce(value, "option #{key}")]
        end
        @values = Option::DEFAULTS.merge(DEFAULTS, chosen).freeze
      end

      # @return [nil] no puma.rb is read
      def puma; end

      # @return [false] this is not what Rhebok's users start
      def rhebok? = false

      private

      def find(key)
        option = Option.find(key)
        return option if OPTIONS.include?(option)
        raise ConfigurationError, "option #{key} is for a server of its own, and has no effect inside another process" if option

        raise ConfigurationError, "unknown option #{key}#{Error.suggestion(key, OPTIONS.flat_map { |one| [one.name, one.word] })}"
      end
    end
  end
end
