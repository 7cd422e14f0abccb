# frozen_string_literal: true

require_relative "closed_loop"

module Bench
  # A running server and clients for it, for a measurement.
  class TestBed
    attr_reader :workload
    # @return [ProcessTree] the server's processes
    attr_reader :tree
    attr_reader :endpoint

    # @param round [Integer] from 0
    def initialize(site:, endpoint:, tree:, options:, round:)
      @site = site
      @endpoint = endpoint
      @tree = tree
      @options = options
      @round = round
      @workload = site.workload
    end

    # @return [Float] how long to load the server
    def seconds = @options.common(:seconds) * workload.stretch

    # @return [Float] how long to load it before
    def warm_up = @options.common(:warm_up)

    # @return [Integer] of clients
    def concurrency = workload.setting(:concurrency, @options)

    # @return [Integer] of the server's processes
    def workers = @site.workers

    # @return [Integer] a number of requests or connections, less in a quick run
    def scaled(number) = [(number * @options.common(:scale)).round, 1].max

    def log = Dir[File.join(@site.dir, "*.log")].first

    # @return [ClosedLoop] clients that send the workload's request, played by one thread for each core that they share with
    #   the server
    def clients = @clients ||= closed_loop(close: workload.closes?, threads: [2, concurrency].min)

    # Every server of a round is asked the same.
    def closed_loop(requests: { workload.request => 1 }, connections: concurrency, pause_ms: workload.think_ms, **options)
      ClosedLoop.new(endpoint: @endpoint, requests: requests, connections: connections, pause_ms: pause_ms, seed: @round, **options)
    end

    # Loads the server for the time asked for.
    #
    # @return [Array(Hash, Hash)] what ClosedLoop gives, and the figures of Measurements::Load
    def measure(clients)
      before = tree.cpu_ns
      load = clients.for_seconds(seconds)
      [load, Measurements::Load.result(tree.cpu_ns - before, load)]
    end
  end
end
