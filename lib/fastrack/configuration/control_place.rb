# frozen_string_literal: true

require_relative "../error"
require_relative "../text"

module Fastrack
  # Where the monitor is to be found; Monitor.start takes it as an Array.
  #
  # @attr path [String, nil] of its unix socket, absolute: by default beside the pid file
  # @attr address [String, nil] "127.0.0.1:9394"
  # @attr token [String, nil]
  ControlPlace = Struct.new(:path, :address, :token) do
    # @param configuration [Configuration]
    # @raise [ConfigurationError]
    def initialize(configuration)
      super(path_of(configuration), configuration.control_listen, configuration.control_token)
      if path && configuration.addresses.any? { |address| address.path && Text.expand(address.path) == path }
        raise ConfigurationError, "#{configuration.source(:ControlPath)}: the server itself listens at #{path}"
      end
      return unless address && !token

      raise ConfigurationError, "#{configuration.source(:ControlListen)} needs ControlToken: #{readers} could read what the server does"
    end

    private

    def readers
      address.match?(/\A(?:127\.|\[::1\])/) ? "every user of this machine" : "whoever reaches #{address}"
    end

    def path_of(configuration)
      return if configuration.control_path == false
      return Text.expand(configuration.control_path) if configuration.control_path

      configuration.pid && "#{Text.expand(configuration.pid).delete_suffix(".pid")}.control"
    end
  end
end
