# frozen_string_literal: true

require_relative "../statistics"

module Bench
  module Measurements
    # Requests per second, CPU time and latencies of a server that has always something to do.
    class Load
      attr_reader :kind

      # @param kind [String] `load`, or `keepalive` where the reports shall say how the workers share the work
      def initialize(kind = "load")
        @kind = kind
      end

      # Warms the server up, then loads it for the time asked for.
      #
      # @return [Hash{String => Numeric}] see .result; and `least_share`, of the worker that used least CPU time
      def run(bed)
        bed.clients.for_seconds(bed.warm_up, pauses: false)
        workers = bed.tree.leaves_ns
        _, result = bed.measure(bed.clients)
        spent = bed.tree.leaves_ns.map { |pid, ns| ns - workers.fetch(pid, 0) }
        result.merge("least_share" => self.class.least_share(spent))
      end

      # The figures of a measurement.
      #
      # @param cpu_ns [Integer] CPU time that the server used meanwhile
      # @return [Hash{String => Numeric}] requests per second, CPU in microseconds per request, latencies in
      #   milliseconds, numbers of requests and errors, and what Served says
      def self.result(cpu_ns, load)
        requests = load[:requests]
        {
          "requests" => requests, "seconds" => (load[:duration_us] / 1e6).round(3), "rps" => rate(load).round(1),
          "cpu_us" => requests.zero? ? nil : (cpu_ns / 1e3 / requests).round(3),
          "p50_ms" => load[:p50_us] / 1e3, "p95_ms" => load[:p95_us] / 1e3, "p99_ms" => load[:p99_us] / 1e3,
          "max_ms" => load[:max_us] / 1e3, "errors" => errors(load)
        }.merge(Served.of(load))
      end

      # @return [Float] requests per second that were answered in time
      def self.rate(*loads) = loads.sum { |load| load[:in_time] } / loads.sum { |load| load[:duration_us] / 1e6 }

      def self.errors(*loads) = loads.sum { |load| load[:errors].values.sum }

      # @param loads [Hash{String => Hash}] two by how their p99 is named
      # @return [Hash{String => Numeric}] p99 in milliseconds, and `p99_kept`, the second one's over the first one's
      def self.p99(loads)
        tails = loads.transform_values { |load| load[:p99_us] / 1e3 }
        { **tails, "p99_kept" => Statistics.ratio(tails.values.last, tails.values.first) }
      end

      # @param spent [Array<Numeric>] by each worker
      # @return [Float, nil] the least of them over their sum; nil when there is nothing to share
      def self.least_share(spent) = Statistics.ratio(spent.min, spent.sum)
    end

    # How many clients were served at least once a second. One that waits in the accept queue while others are served again
    # and again has no latency, so that percentiles do not show it.
    module Served
      # @param loads [Array<Hash>] what ClosedLoop gave
      # @return [Hash{String => Numeric}] of the load with most clients left waiting `clients` and, of these,
      #   `clients_served`: those that never waited for longer than a second. Of all loads `longest_gap_ms`, the longest that a
      #   client went without an answer while it was asking, less what the app took
      def self.of(*loads)
        worst = loads.max_by { |load| [load[:clients] - load[:served_every_second], load[:clients]] }
        { "clients" => worst[:clients], "clients_served" => worst[:served_every_second],
          "longest_gap_ms" => loads.map { |load| load[:longest_gap_us] }.max / 1e3 }
      end
    end
  end
end
