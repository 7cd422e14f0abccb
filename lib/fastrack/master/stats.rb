# frozen_string_literal: true

require_relative "../version"

module Fastrack
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
