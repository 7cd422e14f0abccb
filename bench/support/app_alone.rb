# frozen_string_literal: true

require "fileutils"
require "json"
require "tmpdir"

module Bench
  # The cost of an app without a server: the CPU time of a call, where as many processes make calls as a server would have
  # workers, so that caches and cores are shared as they are with a server. No server can answer more requests than the cores
  # have time for its app.
  module AppAlone
    PROGRAM = File.expand_path("app_alone/call.rb", __dir__)
    # call.rb prints this when it has warmed up.
    READY = "ready\n"
    private_constant :PROGRAM, :READY

    # @param workload [Workload]
    # @param lane [Lane]
    # @param seconds [Float] of calls, after half as many to warm up
    # @param processes [Integer] that make calls at the same time
    # @param database [Database, nil] the app's
    # @return [Hash{String => Float}] microseconds of CPU time for a request, in the mean of all that the workload asks: `app_us` of
    #   the app's process, and `database_us` of those of its database
    # @raise [RunningServer::Failed]
    def self.measure(workload, lane, seconds, processes: 1, database: nil)
      Dir.mktmpdir("bench", lane.scratch) do |dir|
        site = Site.new(dir: dir, workload: workload, workers: processes, lane: lane, database: database)
        command = site.command(["ruby", PROGRAM, site.ru, seconds.to_s])
        callers = Array.new(processes) { IO.popen(command, "r+").tap { |caller| caller.puts(requests(workload)) } }
        result(callers, database)
      rescue SystemCallError, ArgumentError => e
        raise RunningServer::Failed, "the app of #{workload.name} alone: #{e.message}"
      ensure
        # They end by themselves when their standard input does.
        callers&.each(&:close)
      end
    end

    # The most requests per second that any server can answer: each of its workers has one core at a time, and database and load
    # generator run on the same cores.
    #
    # @param result [Hash] of a workload, as Campaign gives it
    # @return [Float, nil] nil where the app was not measured alone
    def self.most_rps(result)
      app, cores, workers = result.values_at("app_us", "cores", "workers")
      return unless app

      client = result["servers"].filter_map { |server| server["medians"]["client_us"] }.min.to_f
      1e6 * [workers / app, cores / (app + result["database_us"].to_f + client)].min
    end

    # @param other [String] name of a server
    # @return [Float, nil] the same as a multiple of the requests per second of another server
    def self.most_to(result, other)
      rps = result["servers"].find { |server| server["name"] == other }&.dig("medians", "rps")
      most_rps(result)&.fdiv(rps) if rps&.positive?
    end

    def self.result(callers, database)
      callers.each { |caller| caller.gets == READY or raise ArgumentError, "it does not run" }
      before = database&.cpu_ns
      callers.each { |caller| caller.puts("go") }
      # Microseconds for a call, and how many calls there were.
      told = callers.map { |caller| caller.gets.to_s.split.map { |word| Float(word) } }
      app = told.sum(&:first) / told.size
      { "app_us" => app.round(1), "database_us" => database ? ((database.cpu_ns - before) / 1e3 / told.sum(&:last)).round(1) : 0.0 }
    end

    # @return [String] what call.rb reads: those of the measurement, or else the workload's one
    def self.requests(workload)
      measurement = workload.measurement
      weights = measurement.respond_to?(:exchanges) ? measurement.exchanges.map { |one| [one.request, one.weight] } : [[workload.request, 1]]
      JSON.generate(weights.map do |request, weight|
        { verb: request.verb, path: request.path, headers: request.headers, body: request.body, weight: weight }
      end)
    end
    private_class_method :requests, :result
  end
end
