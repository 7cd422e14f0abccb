# frozen_string_literal: true

require "json"
require "open3"
require_relative "rust_program"

module Bench
  # Loads a server with the program of bench/load: so many clients, each of which sends its next request when it has its
  # answer and has paused. They keep their connections, or connect anew for each request. What they ask, in which order and
  # after what pauses, depends on the seed alone.
  #
  # wrk is no match here: it corrects its percentiles for pauses that it did not expect, draws what it asks for each
  # connection, so that a faster server gets another mix of requests than a slower one, and does not know of a connection
  # that is never answered.
  class ClosedLoop
    # One answered request: which of the paths it asked, and microseconds of the pause before it, from its beginning to
    # its answer, and inside the app (nil when that says nothing).
    Sample = Struct.new(:path, :pause_us, :latency_us, :service_us)

    # Seconds after which a run that ends by a number of requests is given up.
    LONGEST = 120
    private_constant :LONGEST

    # @param endpoints [Array<Endpoint::Tcp>] over which the clients are shared out
    # @param connections [Integer] clients
    # @param paths [Hash{String => Integer}] the requests' paths, and the weight of each
    # @param request_files [Array<String>] paths of the bytes to send instead, one for each of `paths`, which then are but names
    # @param pipeline [Integer] how many requests a client sends at once, before it waits for all of their answers; latencies are those
    #   of all together
    # @param per_connection [Integer, nil] after how many answers, or batches of them, a client closes its connection
    # @param new_clients [Integer] how many of the clients connect anew for each request
    # @param routers [Integer, nil] how many routers keep the connections instead of the clients: each request goes by one of them,
    #   over any of its connections that is idle
    # @param pause_ms [Float, nil] mean of the exponential pauses
    # @param new_pause_ms [Float, nil] the same for those that connect anew, if it differs
    # @param threads [Integer] that play the clients; with more than one, each has a sequence of its own
    # @param patience [Numeric, nil] seconds until an answer counts as none, if it shall not be 10
    # @param seed [Integer]
    def initialize(endpoints:, connections:, paths: { "/" => 1 }, request_files: [], pipeline: nil, per_connection: nil, new_clients: 0,
                   routers: nil, pause_ms: nil, new_pause_ms: nil, threads: 1, patience: nil, seed: 0)
      @endpoints = endpoints
      @paths = paths
      @pauses = { "pause-ms" => pause_ms, "new-pause-ms" => new_pause_ms }
      @threads = threads
      @request_files = request_files
      @options = { "connections" => connections, "new" => new_clients, "routers" => routers, "seed" => seed, "pipeline" => pipeline,
                   "per-connection" => per_connection, "patience-s" => patience }
    end

    # @param seconds [Numeric] in which requests are begun; the last answers are waited for
    # @param pauses [Boolean] with the pauses, if there are any
    # @param trace [String, nil] path of a file for all samples
    # @return [Hash] `requests` that were answered; `duration_us`, how long they were begun, and `in_time`, how many were
    #   answered by then; `in_part`, how many answers of batches had come by then that were not complete; `p50_us`, `p95_us`, `p99_us`, `max_us`; `errors` by kind; `clients`, how many of them were
    #   `served_every_second`, and `longest_gap_us`, the longest that one of them went without an answer while it was
    #   asking, less what the app took; `kinds`: by path the requests and latencies, with `service_mean_us` and
    #   `service_p50_us`; and, where some clients connect anew, requests, latencies and gaps of `kept` and `new` ones
    # @raise [RuntimeError] when the program fails
    def for_seconds(seconds, pauses: true, trace: nil)
      run("seconds" => seconds, "threads" => @threads, "trace" => trace, **(pauses ? @pauses : {}))
    end

    # @param requests [Integer] how many to make
    # @param trace [String, nil] as for #for_seconds
    # @return [Hash] as #for_seconds
    # @raise [RuntimeError] when the program fails
    def for_requests(requests, trace: nil)
      run("seconds" => LONGEST, "requests" => requests, "trace" => trace, **@pauses)
    end

    # @param trace [String] what #for_seconds has written
    # @return [Array<Sample>] in the order of the plan
    def samples(trace)
      paths = @paths.keys
      File.foreach(trace).map do |line|
        _, kind, pause, latency, service = line.split
        Sample.new(paths.fetch(kind.to_i), pause.to_i, latency.to_i, service == "-" ? nil : service.to_i)
      end
    end

    private

    def run(more)
      words = ["closed-loop", *@endpoints.flat_map { |endpoint| ["--address", endpoint.to_s] },
               *@paths.flat_map { |path, weight| ["--path", "#{path}=#{weight}"] },
               *@request_files.flat_map { |file| ["--request", file] },
               *@options.merge(more).compact.flat_map { |name, value| ["--#{name}", value.to_s] }]
      output, status = Open3.capture2e(RustProgram.path("load"), *words)
      raise "load #{words.join(" ")}: #{output}" unless status.success?

      JSON.parse(output, symbolize_names: true)
    end
  end
end
