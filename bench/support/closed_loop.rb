# frozen_string_literal: true

require "json"
require "open3"
require_relative "rust_program"

module Bench
  # Loads a server with the program of bench/load: so many kept-alive clients, each of which sends its next request when
  # it has its answer and has paused. What it asks, in which order and after what pauses, depends on the seed alone.
  #
  # wrk is no match here: it corrects its percentiles for pauses that it did not expect, and draws what it asks for each
  # connection, so that a faster server gets another mix of requests than a slower one.
  class ClosedLoop
    # One answered request: which of the paths it asked, and microseconds of the pause before it, from its beginning to
    # its answer, and inside the app (nil when that says nothing).
    Sample = Struct.new(:path, :pause_us, :latency_us, :service_us)

    # @param endpoint [Endpoint::Tcp]
    # @param paths [Hash{String => Integer}] what is asked, and how often in proportion
    # @param connections [Integer]
    # @param pause_ms [Float, nil] mean of the exponential pauses
    # @param seed [Integer]
    def initialize(endpoint:, paths:, connections:, pause_ms: nil, seed: 0)
      @paths = paths
      @words = ["closed-loop", "--address", endpoint.to_s, "--connections", connections.to_s, "--seed", seed.to_s,
                "--pause-ms", (pause_ms || 0).to_s]
      paths.each { |path, weight| @words.push("--path", "#{path}=#{weight}") }
    end

    # @param seconds [Numeric] in which requests are begun; the last answers are waited for
    # @param trace [String, nil] path of a file for all samples
    # @return [Hash] `requests`, `duration_us`, `p50_us`, `p95_us`, `p99_us`, `max_us`, `errors` by kind, and `kinds`:
    #   by path the same, with `service_mean_us` and `service_p50_us`
    # @raise [RuntimeError] when the program fails
    def for_seconds(seconds, trace: nil)
      words = [*@words, "--seconds", seconds.to_s]
      words.push("--trace", trace) if trace
      output, status = Open3.capture2e(RustProgram.path("load"), *words)
      raise "load #{words.join(" ")}: #{output}" unless status.success?

      JSON.parse(output, symbolize_names: true)
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
  end
end
