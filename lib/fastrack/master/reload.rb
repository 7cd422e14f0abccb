# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "../proxy"

module Fastrack
  # The configuration of a HUP, which the new generation 0 has read. It counts until the new code fails.
  class Reload
    # @param launcher [Launcher]
    # @param workers [Workers]
    # @yield when the monitor is to listen elsewhere
    def initialize(launcher, workers, &moved)
      @launcher = launcher
      @workers = workers
      @moved = moved
    end

    class << self
      # Logs the lines about a configuration that another process has read.
      #
      # @param data [Hash{String => Object}] see Seat#settle
      def log(data)
        { "output" => Log.method(:say), "warnings" => ->(text) { Log.line(text.delete_prefix("fastrack: "), :warn) } }
          .each { |name, log| Array(data[name]).each { |text| log.call(Text.printable(text.to_s)) } }
      end
    end

    # Applies the settings that a new generation 0 has read.
    #
    # @param data [Hash{String => Object}] see Seat#settle. It may come from a process of the app's user
    # @param remake [Boolean] whether a generation 0 that has died is replaced, without a HUP
    # @return [String, nil] why nothing has changed
    def run(data, remake: false)
      Reload.log(data)
      return Text.printable(data["refused"].to_s) if data["refused"]

      change(remake) { @launcher.reload(data.fetch("settings")) }
      Log.line("HUP: the code stays, because it was loaded before the server; USR2 (fastrack restart) loads new code") if @launcher.loaded? && !remake
      nil
    rescue StandardError => e
      Text.printable(Error.reason(e))
    end

    # Applies the configuration from before.
    #
    # @param remake [Boolean] see #run
    def undo(remake: false) = change(remake) { @launcher.undo }

    # Sets the number of workers.
    #
    # @param learned [Boolean] whether to keep the number that `auto` has found
    def resize(learned: configuration.auto_workers?)
      @workers.size = configuration.max_workers unless learned && @workers.size.positive?
    end

    private

    def configuration = @launcher.configuration

    # Only HUP undoes TTIN, TTOU and WINCH.
    def change(remake)
      auto, most, endpoints = configuration.auto_workers?, configuration.max_workers, configuration.control&.to_a
      yield
      Proxy.assign(@launcher.listeners, configuration)
      @moved.call unless configuration.control&.to_a == endpoints
      @launcher.proxy&.reload
      resize(learned: auto && configuration.auto_workers?) unless remake && configuration.max_workers == most
    end
  end
end
