# frozen_string_literal: true

require_relative "bystanders"
require_relative "closed_loop"

module Bench
  # A running server and clients for it, for a measurement.
  class TestBed
    # @return [Workload]
    attr_reader :workload
    # @return [ProcessTree] the server's processes
    attr_reader :tree

    # @param site [Site] of the server
    # @param endpoints [Array<Endpoint::Tcp>] where clients connect
    # @param tree [ProcessTree]
    # @param options [Options]
    # @param round [Integer] from 0
    def initialize(site:, endpoints:, tree:, options:, round:)
      @site = site
      @endpoints = endpoints
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

    # @return [Endpoint::Tcp] where a single request can be asked
    def endpoint = @endpoints.first

    # @return [Integer] of the server's processes
    def workers = @site.workers

    # @return [Integer] a number of requests or connections, less in a quick run
    def scaled(number) = [(number * @options.common(:scale)).round, 1].max

    # @param bytes [String, nil] what shall be in it
    # @return [String] path of a file that is gone afterwards
    def file(name, bytes = nil) = bytes ? @site.write(name, bytes) : File.join(@site.dir, name)

    # @return [ClosedLoop] clients that send the workload's request, played by one thread for each core that they share with
    #   the server
    def clients
      @clients ||= closed_loop(request_files: [file("request", workload.request_bytes)], threads: [2, concurrency].min,
                               connections: [concurrency, @endpoints.size].max)
    end

    # Every server of a round is asked the same.
    #
    # @param options [Hash] more of ClosedLoop's
    # @return [ClosedLoop]
    def closed_loop(paths: { workload.request.path => 1 }, connections: concurrency, pause_ms: workload.think_ms, **options)
      ClosedLoop.new(endpoints: @endpoints, paths: paths, connections: connections, pause_ms: pause_ms, seed: @round, **options)
    end

    # @see Bystanders.run
    def beside(command, **options, &block) = Bystanders.run(@endpoints.first, command, **options, &block)
  end
end
