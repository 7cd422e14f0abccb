# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "endpoint"
require_relative "nginx"
require_relative "running_server"
require_relative "site"
require_relative "test_bed"

module Bench
  # One server under one workload, started anew, measured once, ended.
  class Trial
    # @param round [Integer] from 0
    # @param database [Database, nil] the app's
    def initialize(server, workload, options, lane, round, database: nil)
      @server = server
      @workload = workload
      @options = options
      @lane = lane
      @round = round
      @database = database
    end

    # @return [Hash{String => Object}] by the workload's measurement
    def run
      Dir.mktmpdir("bench", @lane.scratch) do |dir|
        site = Site.new(dir: dir, workload: @workload, workers: @workload.setting(:workers, @options), lane: @lane, database: @database)
        RunningServer.run(@server, site) do |running|
          behind_front(site) { |endpoint| @workload.measurement.run(bed(site, endpoint, running.tree)) }
        end
      end
    end

    private

    def bed(site, endpoint, tree)
      TestBed.new(site: site, endpoint: endpoint, tree: tree, options: @options, round: @round)
    end

    # nginx, when the workload has it in front, is started and ended with the server.
    def behind_front(site)
      return yield site.endpoint unless @workload.nginx?

      dir = File.join(site.dir, "nginx")
      FileUtils.mkdir(dir)
      front = Site.new(dir: dir, workload: @workload, workers: 1, lane: @lane, unix: false)
      RunningServer.run(Front.new(site.endpoint), front) { yield front.endpoint }
    end
  end
end
