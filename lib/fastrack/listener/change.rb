# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "inherited"

module Fastrack
  # What a reload changes about where the server listens. New addresses are opened at once; #complete closes the old ones.
  class ListenerChange
    # @return [Array<Listener>] those of new addresses
    attr_reader :opened
    # @return [Array<Listener>] those of addresses that are no longer configured
    attr_reader :removed

    # @param listeners [Array<Listener>]
    # @param before [Configuration]
    # @param after [Configuration]
    # @raise [ListenError] and nothing has changed
    def initialize(listeners, before, after)
      @listeners = listeners
      kept, added = after.addresses.partition { |address| before.addresses.include?(address) }
      @removed = unconfigured(kept, before.addresses - after.addresses)
      @opened = []
      # One try each: the master must not wait for a port.
      added.each { |address| @opened.concat(address.open) }
    rescue Error
      cancel
      raise
    end

    # @return [Array<Listener>] those that are used from now on
    def complete
      @removed.each do |listener|
        Log.line("no longer listening on #{listener}")
        listener.close
      end
      @listeners - @removed + @opened
    end

    # For when something else is wrong with the new configuration.
    def cancel
      @opened&.each do |listener|
        listener.close
        listener.remove_file
      end
    end

    private

    # An address with port 0 owns whichever port no other address names.
    def unconfigured(kept, removed)
      rest = InheritedListeners.new(@listeners.dup)
      kept.sort_by { |address| -address.port.to_i }.each { |address| rest.take(address) }
      removed.flat_map { |address| rest.take(address) }
    end
  end
end
