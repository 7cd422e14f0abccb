# frozen_string_literal: true

# A prefork web server for Rack apps: a process side in Ruby, which never touches a request, and a native extension that
# serves them, loaded when a server starts (fastrack/native).
module Fastrack
  # For tests and tools; servers in production do not load it.
  autoload :Server, File.expand_path("fastrack/in_process/server", __dir__)
  # For apps that have ActiveSupport.
  autoload :Notifications, File.expand_path("fastrack/rack/notifications", __dir__)

  class << self
    # What the server of this process is doing: in the master, in workers and in hooks.
    #
    # @return [Hash, nil] see docs/logs-and-stats.md; nil where no server of its own runs
    def stats
      Stats.new(*scoreboard).to_h if scoreboard
    end

    # The app, or a library that it loads, does not bear that workers are forked from one that has served: see docs/memory.md. In the
    # master, or in any worker.
    def forbid_refork!
      return if @refork_forbidden

      @refork_forbidden = Text.utf8(caller(1, 1).first.b[/\A.*?:\d+/])
      @refork_forbids&.call
    end

    # @!visibility private
    # @return [String, nil] where it was forbidden in this process, or in the master before the fork
    attr_reader :refork_forbidden

    # @!visibility private
    # @return [#call] tells the master
    attr_writer :refork_forbids

    # @!visibility private
    # @return [Array(Scoreboard, Integer), nil] the server's, and the pid of its master
    attr_accessor :scoreboard
  end

  # What the server is doing, for Fastrack.stats: read from the memory that all its processes share. It asks no worker, and waits
  # for none. docs/logs-and-stats.md describes the Hash.
  class Stats
    # @param scoreboard [Scoreboard]
    # @param master [Integer] its pid
    def initialize(scoreboard, master)
      @scoreboard = scoreboard
      @master = master
    end

    # @return [Hash{Symbol => Object}]
    def to_h
      { version: VERSION, pid: @master, workers: workers, totals: @scoreboard.totals, restarts: @scoreboard.restarts }
    end

    private

    def workers
      found = Array.new(@scoreboard.used) { |slot| worker(slot) }.compact
      by_number = @scoreboard.requests_by_number
      found.each { |worker| worker[:slot_requests] = by_number.fetch(worker[:nr], worker[:requests]) }
      found.sort_by { |worker| worker.values_at(:nr, :generation, :pid) }
    end

    # @return [Hash, nil] nil if the slot has no worker, or one that is just being forked
    def worker(slot)
      entry = @scoreboard.read(slot)
      return unless entry && entry[:pid]

      busy = entry[:state] != :waiting
      {
        **entry.slice(:nr, :pid, :generation, :state, :requests), request: (entry[:line] if busy), request_id: (entry[:id] if busy),
        seconds: (since(entry[:started]) if busy), connections: @scoreboard.counts(slot)[:connections]
      }
    end

    def since(time) = [Process.clock_gettime(Process::CLOCK_MONOTONIC) - time, 0.0].max
  end
end

require_relative "fastrack/version"
require_relative "fastrack/error"
require_relative "fastrack/handler"
require_relative "fastrack/process/start_command"

Fastrack::StartCommand.capture
