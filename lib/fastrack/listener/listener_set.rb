# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "../proxy"
require_relative "inherited"

module Fastrack
  # The server's listeners. A reload changes them for good when the new workers serve (#settle), or not at all (#undo).
  class ListenerSet
    # @return [Array<Listener>]
    attr_reader :all
    # @return [Array<Listener>] open ones that the last reload has removed from the configuration
    attr_reader :leaving
    # @return [Array<Listener>] closed listeners, whose connections may still be kept alive
    attr_reader :former

    # @param configuration [Configuration]
    # @raise [ListenError]
    def initialize(configuration)
      inherited = InheritedListeners.take_over
      @supervised = inherited.supervised?
      @all = @supervised ? inherited.take_all : open_all(configuration, inherited)
      @all.concat(open_inner(configuration)) if @supervised && @all.none? { |listener| Proxy.inner?(listener) }
      Proxy.assign(@all, configuration)
      warn_of_missing(configuration) if @supervised
    ensure
      inherited&.close_rest
      @former = inherited&.former
      @leaving = []
    end

    # @return [Array<Listener>]
    def open = @all + @leaving

    # @return [Boolean] whether a supervisor has opened the listeners, so that the configuration does not count
    def supervised? = @supervised

    # Listeners whose address is still configured stay open.
    #
    # @param before [Configuration]
    # @param after [Configuration]
    # @yield when new addresses are open, to other steps that may fail
    # @raise [ListenError] then, as when the block raises, nothing has changed
    def change(before, after)
      opened = []
      return yield if supervised? || (before.listen_values == after.listen_values && before.proxy? == after.proxy?)

      kept, added = after.addresses.partition { |address| before.addresses.include?(address) }
      removed = unconfigured(kept, before.addresses - after.addresses)
      # A HUP may name an address that an earlier, unsettled HUP removes.
      back, added = from_leaving(added)
      # One try for each address, because the master must not wait for a port.
      added.each { |address| opened.concat(SafeFile.naming(address.to_s) { address.open }) }
      yield
      @before ||= @all
      @all = @all - removed + back + opened
      @leaving = @leaving - back + removed
      Proxy.assign(@all, after)
      announce(opened, urls: after.development?)
    rescue Exception # rubocop:disable Lint/RescueException -- it is raised again
      remove(opened)
      raise
    end

    # Closes listeners that are no longer configured.
    #
    # @return [Array<Listener>] these
    def settle
      @leaving.each(&:drop)
      @former += @leaving
      @leaving.tap { forget }
    end

    # Restores the listeners from before #change.
    def undo
      return unless @before

      remove(open - @before)
      @all = @before
      forget
    end

    # Logs a line for each address. A host name may have several listeners.
    def announce(listeners = @all, urls:)
      listeners = listeners.reject { |listener| listener.role == :inner }
      listeners.map(&:to_s).uniq.each { |address| Log.say("Fastrack starts Listening on #{address} Pid:#{Process.pid}") }
      listeners.map(&:url).uniq.each { |url| Log.say("* Listening on #{url}") } if urls
    end

    # Closes all listeners. Only a supervisor removes files of its sockets.
    def close
      open.each(&:close)
      [*open, *@former].each(&:remove_file) unless supervised?
    end

    private

    # Only the supervisor's sockets count, so an address with TLS may have none, and plain clients be served where TLS was meant.
    def warn_of_missing(configuration)
      served = @all.select(&:tcp?).map { |listener| Proxy.address_of(listener, configuration) }
      (configuration.addresses.select(&:tls?) - served).each do |address|
        Log.line("ssl://#{address} is not served: the supervisor has passed no socket with port #{address.port}", :warn)
      end
    end

    def forget
      @before = nil
      @leaving = []
    end

    def open_inner(configuration) = configuration.proxy? ? Proxy.inner_address(configuration).open : []

    def open_all(configuration, inherited)
      opened = []
      configuration.addresses.each do |address|
        found = inherited.take(address)
        opened.concat(found.empty? ? SafeFile.naming(address.to_s) { address.open_with_retries } : found)
      end
      opened
    rescue Error
      remove(opened)
      raise
    end

    # The listeners of removed addresses. An address with port 0 owns each listener whose port no other address names.
    def unconfigured(kept, removed)
      rest = InheritedListeners.new(@all.dup)
      kept.sort_by { |address| -address.port.to_i }.each { |address| rest.take(address) }
      removed.flat_map { |address| rest.take(address) }
    end

    # @return [Array(Array<Listener>, Array<Address>)] listeners of these addresses that are still open, and the other addresses
    def from_leaving(addresses)
      rest = InheritedListeners.new(@leaving)
      found = addresses.to_h { |address| [address, rest.take(address)] }
      [found.values.flatten, addresses.select { |address| found[address].empty? }]
    end

    def remove(listeners)
      listeners.each(&:close)
      listeners.each(&:remove_file)
    end
  end
end
