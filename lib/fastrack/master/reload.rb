# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "../proxy"
require_relative "hooks"

module Fastrack
  # The configuration of a HUP. It counts from the start of the new generation 0 on, and no longer when that fails.
  class Reload
    # @param launcher [Launcher]
    # @param workers [Workers]
    # @param hooks [MasterHooks]
    # @yield when the monitor is to listen elsewhere
    def initialize(launcher, workers, hooks, &moved)
      @launcher = launcher
      @workers = workers
      @hooks = hooks
      @moved = moved
    end

    # Reads the ConfigFile, and applies it.
    #
    # @return [String, nil] why nothing has changed
    def run
      change { @launcher.reload { |seconds, reading| @hooks.within(seconds, &reading) } }
      Log.line("HUP: the code stays, because it was loaded before the server; USR2 (fastrack restart) loads new code") if @launcher.loaded?
      nil
    rescue Exception => e # rubocop:disable Lint/RescueException -- no ConfigFile ends the server
      e.is_a?(SystemExit) ? "the ConfigFile calls exit" : Error.reason(e)
    end

    # Applies the configuration from before.
    def undo = change { @launcher.undo }

    # Sets the number of workers.
    #
    # @param learned [Boolean] whether to keep the number that `auto` has found
    def resize(learned: configuration.auto_workers?)
      @workers.size = configuration.max_workers unless learned && @workers.size.positive?
    end

    private

    def configuration = @launcher.configuration

    def change
      auto, endpoints = configuration.auto_workers?, configuration.control&.to_a
      yield
      Proxy.assign(@launcher.listeners, configuration)
      @moved.call unless configuration.control&.to_a == endpoints
      @launcher.proxy&.reload
      resize(learned: auto && configuration.auto_workers?)
    end
  end
end
