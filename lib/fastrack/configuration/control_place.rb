# frozen_string_literal: true

require_relative "../error"

module Fastrack
  # Where the monitor is to be found.
  class ControlPlace
    # @return [String, nil] of its unix socket, absolute: by default beside the pid file
    attr_reader :path
    # @return [String, nil] "127.0.0.1:9394"
    attr_reader :address
    # @return [String, nil]
    attr_reader :token

    # @param configuration [Configuration]
    # @raise [ConfigurationError]
    def initialize(configuration)
      @path = path_of(configuration)
      @address = configuration.control_listen
      @token = configuration.control_token
      if @path && configuration.addresses.any? { |address| address.path && File.expand_path(address.path) == @path }
        raise ConfigurationError, "#{configuration.source(:ControlPath)}: the server itself listens at #{@path}"
      end
      return unless @address && !@token

      raise ConfigurationError, "#{configuration.source(:ControlListen)} needs ControlToken: #{readers} could read what the server does"
    end

    # @return [Array] as Monitor.start takes it
    def to_a = [@path, @address, @token]

    private

    def readers
      @address.match?(/\A(?:127\.|\[::1\])/) ? "every user of this machine" : "whoever reaches #{@address}"
    end

    def path_of(configuration)
      return if configuration.control_path == false
      return File.expand_path(configuration.control_path) if configuration.control_path

      configuration.pid && "#{File.expand_path(configuration.pid).delete_suffix(".pid")}.control"
    end
  end
end
