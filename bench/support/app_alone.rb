# frozen_string_literal: true

require "fileutils"
require "json"
require "open3"
require "tmpdir"

module Bench
  # What an app costs without a server: the CPU time of a call, in one process. No server can answer more requests than the
  # cores have time for its app.
  module AppAlone
    PROGRAM = File.expand_path("app_alone/call.rb", __dir__)
    private_constant :PROGRAM

    # @param workload [Workload] one whose measurement has `exchanges`
    # @param lane [Lane]
    # @param seconds [Float] of calls, after half as many to warm up
    # @param database [Database, nil] the app's
    # @return [Float] microseconds of CPU time for a request, in the mean of all that the workload asks
    # @raise [RunningServer::Failed]
    def self.microseconds(workload, lane, seconds, database: nil)
      Dir.mktmpdir("bench", lane.scratch) do |dir|
        site = Site.new(dir: dir, workload: workload, workers: 1, lane: lane, database: database)
        output, errors, status = Open3.capture3(*site.command(["ruby", PROGRAM, site.ru, seconds.to_s]), stdin_data: requests(workload))
        raise RunningServer::Failed, "the app of #{workload.name} alone: #{errors.lines.first(3).join(" | ").strip}" unless status.success?

        Float(output.lines.last).round(1)
      end
    end

    # The most requests per second that any server can answer: each of its workers has one core at a time, and the load
    # generator runs on the same cores.
    #
    # @param result [Hash] of a workload, as Campaign gives it
    # @return [Float, nil] nil where the app was not measured alone
    def self.most_rps(result)
      app, cores, workers = result.values_at("app_us", "cores", "workers")
      return unless app

      client = result["servers"].filter_map { |server| server["medians"]["client_us"] }.min.to_f
      1e6 * [workers / app, cores / (app + client)].min
    end

    # @param other [String] name of a server
    # @return [Float, nil] the same as a multiple of the requests per second of another server
    def self.most_to(result, other)
      rps = result["servers"].find { |server| server["name"] == other }&.dig("medians", "rps")
      most_rps(result)&.fdiv(rps) if rps&.positive?
    end

    def self.requests(workload)
      JSON.generate(workload.measurement.exchanges.map do |exchange|
        request = exchange.request
        { verb: request.verb, path: request.path, headers: request.headers, body: request.body, weight: exchange.weight }
      end)
    end
    private_class_method :requests
  end
end
