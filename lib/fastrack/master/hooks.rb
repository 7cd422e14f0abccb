# frozen_string_literal: true

require_relative "../log"
require_relative "time_limit"

module Fastrack
  # Runs hooks, events and plugins in the master, which does nothing else meanwhile. Whatever they raise, and however long they take,
  # the master goes on, and obeys an order to end.
  class MasterHooks
    # @param launcher [Launcher]
    # @param signals [SignalQueue] the master's
    def initialize(launcher, signals)
      @launcher = launcher
      @signals = signals
    end

    # Runs the block for WorkerBootTimeout at most.
    #
    # @param grace [Float] see TimeLimit#run
    # @raise [TimeLimit::Unfinished], and what the block raises
    def bounded(grace: 0, &block)
      @signals.bounded(@launcher.configuration.worker_boot_timeout, grace: grace, &block)
    end

    # @return [#call] the same, for a fork: what wraps Process._fork may also wait for ever
    def fork_limit = ->(&fork) { bounded(grace: TimeLimit::MOMENT, &fork) }

    # As #bounded, and logs what the block raises. After an order to end the server it gets a moment: it may have something to clean up.
    #
    # @param name [String, Symbol] for the log
    # @return [Boolean] whether it has returned
    def call(name, &block)
      bounded(grace: TimeLimit::MOMENT, &block)
      true
    rescue Exception => e # rubocop:disable Lint/RescueException -- no hook ends the server, not by `exit` either
      Log.exception("#{name} failed", e)
      false
    end

    # A hook of the configuration.
    #
    # @param word [Symbol]
    def call_hook(word, *arguments)
      configuration = @launcher.configuration
      call(word) { configuration.call_hook(word, @launcher, *arguments) } if configuration.public_send(word)
    end
  end
end
