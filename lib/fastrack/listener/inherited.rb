# frozen_string_literal: true

require_relative "."
require_relative "../log"
require_relative "../server_starter"

module Fastrack
  # The listeners that a master leaves to the one that it starts: the same sockets, so that no client notices. Their
  # descriptors are told in a variable of the environment, in the form of SERVER_STARTER_PORT.
  class InheritedListeners
    VARIABLE = "FASTRACK_LISTENERS"

    # What stands for the address of a unix socket, which has its path in itself.
    UNIX = "unix"

    # What stands before those that a supervisor has opened, and no configuration decides on.
    GIVEN = "given "

    # @param listeners [Array<Listener>]
    # @param given [Boolean] whether they are a supervisor's
    # @return [String] the variable's value
    def self.describe(listeners, given:)
      pairs = listeners.map { |listener| "#{listener.tcp? ? listener : UNIX}=#{listener.fileno}" }
      "#{GIVEN if given}#{pairs.join(";")}"
    end

    # Takes the variable out of the environment: the processes that the app starts do not have the descriptors.
    #
    # @param environment [Hash, ENV]
    # @return [InheritedListeners]
    def self.take_over(environment = ENV)
      text = environment.delete(VARIABLE).to_s
      # The options of the sockets are as the configuration wanted them.
      listeners = ServerStarter.parse(text.delete_prefix(GIVEN), VARIABLE, tcp_nodelay: nil, tcp_defer_accept: nil).map(&:own)
      new(listeners, given: text.start_with?(GIVEN))
    rescue ListenError => e
      Log.line("#{e.message}; listening anew")
      new([])
    end

    # @param listeners [Array<Listener>]
    def initialize(listeners, given: false)
      @listeners = listeners
      @given = given
    end

    # Whether they are to be used whatever is configured.
    def given?
      @given && !@listeners.empty?
    end

    # @param address [Address] with port 0 for whichever the kernel has chosen
    # @return [Array<Listener>] those that listen there; empty when nothing was inherited for that address
    def take(address)
      found, @listeners = @listeners.partition { |listener| at?(listener, address) }
      found
    end

    # @return [Array<Listener>]
    def take_all
      @listeners.tap { @listeners = [] }
    end

    # Lets go of those that nobody has asked for: they are not configured any more.
    #
    # @return [Array<Listener>]
    def close_rest
      take_all.each do |listener|
        Log.line("no longer listening on #{listener}")
        listener.close
      end
    end

    private

    def at?(listener, address)
      return at_path?(listener, File.expand_path(address.path)) if address.path

      listener.tcp? && listener.server_name == Listener.authority(address.host) &&
        [0, listener.server_port.to_i].include?(address.port)
    end

    # Where somebody has removed the socket's file, its clients find nothing there any more.
    def at_path?(listener, path)
      listener.unix_path == path && File.socket?(path)
    end
  end
end
