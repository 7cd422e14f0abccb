# frozen_string_literal: true

require_relative "log"
require_relative "process/sd_notify"

module Fastrack
  # What the server says about itself: on stdout to whoever reads along, and to the supervisor that has started it.
  class Announcer
    def initialize(notifier = Notifier.new)
      @notifier = notifier
      @alive_at = nil
    end

    # It listens; nobody serves yet. One line for each address: a name with several addresses is listened on as one.
    #
    # @param listeners [Array<Listener>]
    def listening(listeners)
      listeners.map(&:to_s).uniq.each { |address| Log.say("Fastrack starts Listening on #{address} Pid:#{Process.pid}") }
    end

    # All workers serve.
    #
    # @param workers [Integer]
    # @param takes_over [Boolean] whether another process was the master until now
    def ready(workers, takes_over:)
      @notifier.main_pid(Process.pid) if takes_over
      @notifier.ready("#{workers} workers")
      Log.say("Fastrack is ready Workers:#{workers} Pid:#{Process.pid}")
    end

    # The configuration, or the code, is changed for another.
    def reloading
      @notifier.reloading
    end

    # The change was given up: what was there serves on.
    #
    # @param workers [Integer]
    def unchanged(workers)
      @notifier.ready("#{workers} workers")
    end

    def stopping
      @notifier.stopping
    end

    # @return [Float, nil] monotonic seconds when #alive is due
    def due_at
      interval = @notifier.watchdog_interval
      interval && (@alive_at ? @alive_at + interval : 0.0)
    end

    # The master's loop turns.
    def alive(now)
      due = due_at
      return if due.nil? || now < due

      @alive_at = now
      @notifier.watchdog
    end
  end
end
