# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "endpoint"
require_relative "load_generator"
require_relative "nginx"
require_relative "running_server"
require_relative "site"

module Bench
  # One server under one workload, started anew, measured once, ended.
  class Trial
    # @param server [#name, #commands] see Servers
    # @param workload [Workload]
    # @param options [Options]
    # @param lane [Lane]
    def initialize(server, workload, options, lane)
      @server = server
      @workload = workload
      @options = options
      @lane = lane
    end

    # @return [Hash{String => Object}] see #load and #memory
    # @raise [RunningServer::Failed]
    def run
      Dir.mktmpdir("bench", @lane.scratch) do |dir|
        site = Site.new(dir: dir, workload: @workload, workers: @workload.setting(:workers, @options), lane: @lane)
        RunningServer.run(@server, site) do |running|
          behind_front(site) { |endpoints| measure(running.tree, generator(site, endpoints)) }
        end
      end
    end

    # What a measurement of `load` is made of.
    #
    # @param cpu_ns [Integer] CPU time that the server used meanwhile
    # @param load [Hash] what LoadGenerator gave
    # @return [Hash{String => Numeric}] a measurement: requests per second, CPU in microseconds per request,
    #   latencies in milliseconds, numbers of requests and errors
    def self.measurement(cpu_ns, load)
      requests = load[:requests]
      seconds = load[:duration_us] / 1e6
      {
        "requests" => requests, "seconds" => seconds.round(3), "rps" => (requests / seconds).round(1),
        "cpu_us" => requests.zero? ? nil : (cpu_ns / 1e3 / requests).round(3),
        "p50_ms" => load[:p50_us] / 1e3, "p95_ms" => load[:p95_us] / 1e3, "p99_ms" => load[:p99_us] / 1e3,
        "max_ms" => load[:max_us] / 1e3, "errors" => load[:errors].values.sum
      }
    end

    private

    # nginx, when the workload has it in front, is started and ended with the server.
    def behind_front(site)
      return yield site.endpoints unless @workload.nginx?

      dir = File.join(site.dir, "nginx")
      FileUtils.mkdir(dir)
      front = Site.new(dir: dir, workload: @workload, workers: 1, lane: @lane, unix: false)
      RunningServer.run(Nginx.new(site.endpoints), front) { yield front.endpoints }
    end

    def generator(site, endpoints)
      LoadGenerator.new(request_file: site.write("request", @workload.request_bytes), endpoints: endpoints,
                        concurrency: @workload.setting(:concurrency, @options), think_ms: @workload.think_ms)
    end

    def measure(tree, generator)
      @workload.memory? ? memory(tree, generator) : load(tree, generator)
    end

    # Warms the server up, then loads it for the time asked for.
    def load(tree, generator)
      generator.for_seconds(@options.common(:warm_up), think: false)
      before = tree.cpu_ns
      result = generator.for_seconds(@options.common(:seconds) * @workload.stretch)
      self.class.measurement(tree.cpu_ns - before, result)
    end

    # PSS of all processes after each number of requests, in MB (10^6 bytes), and errors.
    def memory(tree, generator)
      done = 0
      @workload.memory_after.each_with_object("errors" => 0) do |target, result|
        requests = [(target * @options.common(:scale)).round, 1].max
        load = generator.for_requests(requests - done)
        done = requests
        result["pss_mb_after_#{target}"] = (tree.pss_bytes / 1e6).round(3)
        result["errors"] += load[:errors].values.sum
      end
    end
  end
end
