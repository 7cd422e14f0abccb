# frozen_string_literal: true

require_relative "error"
require_relative "log"
require_relative "server_starter"
require_relative "systemd_sockets"

module Fastrack
  # All listeners of a server: those that it was given open, or else those that are configured.
  module Listeners
    module_function

    # @param configuration [Configuration]
    # @param environment [Hash, ENV]
    # @yieldparam address [Address] one that is configured
    # @yieldreturn [Array<Listener>] what listens there already and is to be used; none: it is opened
    # @return [Array<Listener>] at least one
    # @raise [ListenError] and none is open
    def open(configuration, environment: ENV)
      given = given_by(environment)
      return given unless given.empty?

      opened = []
      configuration.addresses.each do |address|
        found = block_given? ? yield(address) : []
        opened.concat(found.empty? ? open_at(address) : found)
      end
      opened
    rescue Error
      opened&.each(&:close)
      raise
    end

    # Sockets that were open before this process was: start_server's, systemd's.
    def given_by(environment)
      ServerStarter.listeners(environment) + SystemdSockets.take_over(environment)
    end

    # As often as the address wants to be tried.
    #
    # @return [Array<Listener>]
    # @raise [ListenError]
    def open_at(address)
      left = address.tries - 1
      begin
        address.open
      rescue AddressInUseError => e
        raise if left.zero?

        left -= 1
        Log.line("#{e.message}; trying again every #{address.delay} s") if left == address.tries - 2
        sleep(address.delay)
        retry
      end
    end
  end
end
