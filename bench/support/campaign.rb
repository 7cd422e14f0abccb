# frozen_string_literal: true

require "time"
require_relative "database"
require_relative "machine"
require_relative "statistics"
require_relative "trial"
require_relative "turns"

module Bench
  # A whole run: every workload, in rounds in which each server has its turn.
  class Campaign
    # The server that the run is about.
    SUBJECT = "fastrack"

    # @param log [IO] for one line per measurement
    def initialize(options, log: $stderr)
      @options = options
      @log = log
      @lane = Lane.new(options.lane)
      @workloads = Workloads.named(options.workloads)
      @chosen = Servers.named(options.servers)
    end

    # @return [Hash] the results, as they go into the JSON
    # @raise [RunningServer::Failed] when Fastrack, or a server that was asked for by name, does not work
    def run
      {
        "started" => Time.now.utc.iso8601, "quick" => @options.quick?,
        "lane" => @lane.name, "machine" => Machine.facts,
        "versions" => @lane.versions, "rounds" => @options.common(:rounds), "seconds" => @options.common(:seconds),
        "workloads" => @workloads.map { |workload| measure(workload) }
      }
    ensure
      @database&.stop
    end

    private

    def measure(workload)
      @database ||= Database.start(@lane) if workload.database?
      servers = servers_for(workload)
      rounds = servers.to_h { |server| [server, []] }
      pauses = Array.new(@options.common(:rounds)) do |round|
        paced = at_pace(workload)
        there = in_order(servers & rounds.keys, round)
        Turns.take(there.to_h { |server| [server, -> { trial(server, paced, round) }] }).each { |server, measured| rounds[server].concat(measured) }
        drop_failed(rounds)
        paced.think_ms
      end
      { **result(workload, rounds), **(workload.share ? { "pause_ms" => pauses } : {}) }
    end

    # With the pauses that make the workload's load now: a machine's speed may differ from one round to the next. A server that has the same
    # workers and no collector of its own says what saturates it.
    def at_pace(workload)
      return workload unless workload.share

      server, = Servers.named([SUBJECT])
      saturated = Trial.new(server, workload.saturated, @options, @lane, 0, database: @database).run
      workload.paced(saturated.fetch("rps"), workload.setting(:concurrency, @options), workload.setting(:workers, @options))
    end

    # Forwards and backwards in turn, so that none is always the first, or always after the same one.
    def in_order(servers, round) = round.even? ? servers : servers.reverse

    def servers_for(workload)
      servers = @chosen.empty? ? Servers.named(workload.servers) : @chosen
      able, unable = servers.partition { |server| server.serves?(workload) }
      unable.each { |server| say(workload, server, "left out: it cannot run this workload") }
      able
    end

    def trial(server, workload, round)
      measured = [Trial.new(server, workload, @options, @lane, round, database: @database).run].flatten
      measured.each { |turn| say(workload, server, "round #{round + 1}: #{turn.map { |name, value| "#{name} #{value}" }.join(", ")}") }
    rescue RunningServer::Failed => error
      raise if round.zero? && (server.name == SUBJECT || !@chosen.empty?)

      say(workload, server, "round #{round + 1} failed: #{error.message}")
      Array.new(workload.turns)
    end

    # Not every lane has every server: one that does not work the first time is left out, unless it was asked for or is
    # Fastrack. One that fails later has a round less, which the reports say.
    def drop_failed(rounds)
      rounds.reject! { |_, measured| measured.compact.empty? }
    end

    def result(workload, rounds)
      servers = rounds.map do |server, own|
        ratios = rounds.to_h { |other, others| [other.name, Statistics.ratios(own, others)] }
        { "name" => server.name, "rounds" => own, "failed" => own.count(nil),
          "medians" => Statistics.medians(own), "ratios" => ratios }
      end
      {
        "name" => workload.name, "title" => workload.title, "kind" => workload.measurement.kind,
        "workers" => workload.setting(:workers, @options),
        "concurrency" => workload.setting(:concurrency, @options), "servers" => servers
      }
    end

    def say(workload, server, text)
      @log.puts "#{workload.name} #{server.name}: #{text}"
    end
  end
end
