# frozen_string_literal: true

require_relative "../error"
require_relative "inherited"
require_relative "../log"

module Fastrack
  # What a new configuration changes about where a running server listens. What it names anew is open once this is made;
  # what it no longer names is closed by #complete.
  class ListenerChange
    # @return [Array<Listener>] those of addresses that are new
    attr_reader :opened
    # @return [Array<Listener>] those of addresses that are no longer named
    attr_reader :gone

    # @param listeners [Array<Listener>]
    # @param before [Configuration]
    # @param after [Configuration]
    # @raise [ListenError] and nothing has changed
    def initialize(listeners, before, after)
      @listeners = listeners
      kept, added = after.addresses.partition { |address| before.addresses.include?(address) }
      @gone = no_longer_named(kept, before.addresses - after.addresses)
      @opened = []
      # Once each: the master has other things to do than to wait for a port.
      added.each { |address| @opened.concat(address.open) }
    rescue Error
      cancel
      raise
    end

    # @return [Array<Listener>] those to be used from now on
    def complete
      @gone.each do |listener|
        Log.line("no longer listening on #{listener}")
        listener.close
      end
      @listeners - @gone + @opened
    end

    # Something else was wrong with the configuration.
    def cancel
      @opened&.each(&:close)
    end

    private

    # A port that the kernel has chosen is known by being none that is named.
    def no_longer_named(kept, gone)
      rest = InheritedListeners.new(@listeners.dup)
      kept.sort_by { |address| -address.port.to_i }.each { |address| rest.take(address) }
      gone.flat_map { |address| rest.take(address) }
    end
  end
end
