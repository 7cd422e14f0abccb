# frozen_string_literal: true

# A prefork web server for Rack apps: a process side in Ruby, which never touches a request, and a native extension that
# serves them, loaded when a server starts (fastrack/native).
module Fastrack
  # For tests and tools. Servers in production do not load this class.
  autoload :Server, File.expand_path("fastrack/in_process/server", __dir__)
  # Needs ActiveSupport.
  autoload :Notifications, File.expand_path("fastrack/rack/notifications", __dir__)

  class << self
    # Statistics of the server that this process belongs to. Works in the master, in workers and in hooks.
    #
    # @return [Hash, nil] see docs/logs-and-stats.md; nil in a process that belongs to no server
    def stats
      Stats.new(*scoreboard).to_h if scoreboard
    end

    # The division of a request's time, in seconds: `queue`, `upload`, `app` (on Ruby 3.2 and later also its parts `gvl_wait`, `running` and
    # `off_gvl`) and `send`. In a callback after the response it is that of the whole request.
    #
    # @param env [Hash] of the request
    # @return [Hash{Symbol => Float}, nil] see docs/logs-and-stats.md; nil without the option Timings, and when the request is over
    def timings(env) = env["fastrack.client_gone"]&.timings

    # Declares that the app must not be forked after it has served requests, because of the app itself or of a library. No worker becomes
    # the mold then (docs/memory.md). Works in the master and in any worker.
    def forbid_refork!
      return if @refork_forbidden

      @refork_forbidden = Text.utf8(caller(1, 1).first.b[/\A.*?:\d+/])
      @refork_forbids&.call
    end

    # @!visibility private
    # @return [String, nil] file and line of the call of #forbid_refork!, in this process or in the master before the fork
    attr_reader :refork_forbidden

    # @!visibility private
    # @return [#call] reports the call of #forbid_refork! to the master
    attr_writer :refork_forbids

    # @!visibility private
    # @return [Integer, nil] threads of each worker
    attr_accessor :max_threads

    # @!visibility private
    # @return [Array(Scoreboard, Integer), nil] the server's scoreboard, and the pid of the master
    attr_accessor :scoreboard
  end

  # The Hash of Fastrack.stats, which docs/logs-and-stats.md describes. All figures come from memory that the server's processes share, so
  # no worker is asked.
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

    # @return [Hash, nil] nil without a worker in the slot, and while the worker is being forked
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
