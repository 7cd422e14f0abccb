# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "inherited"

module Fastrack
  # Where the server listens. What a reload changes about that is done at its end, or not at all.
  class ListenerSet
    # @return [Array<Listener>]
    attr_reader :all
    # @return [Array<Listener>] closed ones: connections from them may still be kept alive
    attr_reader :former

    # @param configuration [Configuration]
    # @raise [ListenError]
    def initialize(configuration)
      inherited = InheritedListeners.take_over
      @supervised = inherited.supervised?
      @all = @supervised ? inherited.take_all : open(configuration, inherited)
    ensure
      @former = inherited ? inherited.close_rest : []
    end

    # @return [Boolean] whether a supervisor has opened the listeners, so that the configuration has no say
    def supervised? = @supervised

    # Listeners whose address is still configured stay open.
    #
    # @param before [Configuration]
    # @param after [Configuration]
    # @yield when new addresses are open: what else may fail
    # @return [Array<Listener>] those that are no longer configured, now closed
    # @raise [ListenError] and nothing has changed, as when the block raises
    def change(before, after)
      opened = []
      if supervised? || before.place == after.place
        yield
        return []
      end
      kept, added = after.addresses.partition { |address| before.addresses.include?(address) }
      removed = unconfigured(kept, before.addresses - after.addresses)
      # One try each: the master must not wait for a port.
      added.each { |address| opened.concat(address.open) }
      yield
      replace(removed, opened)
      announce(opened, urls: after.development?)
      removed
    rescue Exception # rubocop:disable Lint/RescueException -- it is raised again
      remove(opened)
      raise
    end

    # One line for each address: a host name may have several listeners.
    def announce(listeners = @all, urls:)
      listeners.map(&:to_s).uniq.each { |address| Log.say("Fastrack starts Listening on #{address} Pid:#{Process.pid}") }
      listeners.map(&:url).uniq.each { |url| Log.say("* Listening on #{url}") } if urls
    end

    # A supervisor's files are the supervisor's.
    def close
      @all.each(&:close)
      [*@all, *@former].each(&:remove_file) unless supervised?
    end

    private

    def open(configuration, inherited)
      opened = []
      configuration.addresses.each do |address|
        found = inherited.take(address)
        opened.concat(found.empty? ? address.open_with_retries : found)
      end
      opened
    rescue Error
      remove(opened)
      raise
    end

    # An address with port 0 owns whichever port no other address names.
    def unconfigured(kept, removed)
      rest = InheritedListeners.new(@all.dup)
      kept.sort_by { |address| -address.port.to_i }.each { |address| rest.take(address) }
      removed.flat_map { |address| rest.take(address) }
    end

    def replace(removed, opened)
      removed.each(&:give_up)
      @all = @all - removed + opened
      @former += removed
    end

    def remove(listeners)
      listeners.each(&:close)
      listeners.each(&:remove_file)
    end
  end
end
