# frozen_string_literal: true

require_relative "../request"
require_relative "../single_queue"
require_relative "../statistics"

module Bench
  module Measurements
    # Latencies of requests that take differently long, beside those of an ideal single queue.
    class Mix
      PERCENTILES = [50, 95, 99].freeze
      FAST, SLOW = %w[/fast /slow].map { |path| Request.new(path: path) }
      private_constant :PERCENTILES, :SLOW

      # @param slow [Integer] how many of 100 requests take long
      # @param new_share [Numeric] how many of the clients connect anew for each request, from 0 to 1
      # @param routers [Integer, nil] who keeps the connections, see ClosedLoop
      # @param at_once [Integer, nil] where workers have several threads: how many requests each of them serves at once in the
      #   ideal: as many as there are threads where requests wait, 1 where they compute
      def initialize(slow, new_share: 0, routers: nil, at_once: nil)
        @requests = { FAST => 100 - slow, SLOW => slow }
        @new_share = new_share
        @routers = routers
        @at_once = at_once
      end

      def kind
        return "router" if @routers
        return "mix-threads" if @at_once

        @new_share.zero? ? "mix" : "mix-new"
      end

      # @return [Hash{String => Numeric}] see Load.result; `p50_fast_ms` and `p99_fast_ms` of the short ones; `ideal_pN_ms`; and
      #   `pN_to_ideal`; where there are clients that connect anew, see NewClients.figures
      def run(bed)
        clients = bed.closed_loop(requests: @requests, new: (bed.concurrency * @new_share).round, routers: @routers)
        clients.for_seconds(bed.warm_up / 2)
        load, result = bed.measure(clients)
        result.merge!(NewClients.figures(load)) if load[:new]
        ideal = self.class.ideal(load[:samples], servers: bed.workers * (@at_once || 1), clients: bed.concurrency)
        result.merge(fast(load[:samples]), ideal, ratios(result, ideal))
      end

      # @param samples [Array<ClosedLoop::Sample>] of which each gives the simulation a pause and a service time, in the
      #   same order; those without a service time count for nothing
      # @return [Hash{String => Float}] `ideal_pN_ms`; empty when there is no sample
      def self.ideal(samples, servers:, clients:)
        jobs = samples.filter_map { |sample| [sample.pause_us, sample.service_us] if sample.service_us }
        latencies = SingleQueue.new(servers: servers, clients: clients).latencies(jobs).sort
        return {} if latencies.empty?

        PERCENTILES.to_h { |percent| ["ideal_p#{percent}_ms", Statistics.percentile(latencies, percent) / 1e3] }
      end

      private

      def fast(samples)
        latencies = samples.select { |sample| sample.request == FAST }.map(&:latency_us).sort
        [50, 99].to_h { |percent| ["p#{percent}_fast_ms", Statistics.percentile(latencies, percent)&.fdiv(1e3)] }
      end

      def ratios(result, ideal)
        PERCENTILES.each_with_object({}) do |percent, ratios|
          ratios["p#{percent}_to_ideal"] = Statistics.ratio(result["p#{percent}_ms"], ideal["ideal_p#{percent}_ms"])
        end
      end
    end

    # One client that connects, asks once, closes and pauses, beside clients that keep their connections and never pause.
    class Newcomer
      # Milliseconds, on average.
      PAUSE = 50.0
      private_constant :PAUSE

      def kind = "newcomer"

      # @return [Hash{String => Numeric}] see Load.result and NewClients.figures; `newcomer_requests`
      def run(bed)
        clients = bed.closed_loop(connections: bed.concurrency + 1, new: 1, new_pause_ms: PAUSE)
        clients.for_seconds(bed.warm_up / 2)
        load, result = bed.measure(clients)
        result.merge(NewClients.figures(load), "newcomer_requests" => load[:new][:requests])
      end
    end

    # Clients that connect anew for each request, apart from those that keep their connections.
    module NewClients
      # @param load [Hash] what ClosedLoop gave, with clients of both kinds
      # @return [Hash{String => Numeric, nil}] `pN_kept_ms`, `pN_new_ms`, and the latter as a multiple of the former,
      #   `pN_new_to_kept`; `longest_new_ms`, which a client without an answer has too, and `longest_new_to_kept`, as a
      #   multiple of the median of the kept ones. nil where there was no request
      def self.figures(load)
        longest = load[:new].values_at(:max_us, :longest_gap_us).max / 1e3
        figures = %w[p50 p95 p99].each_with_object({}) do |name, found|
          kept, new = load.values_at(:kept, :new).map { |group| group[:requests].zero? ? nil : group[:"#{name}_us"] / 1e3 }
          found.merge!("#{name}_kept_ms" => kept, "#{name}_new_ms" => new, "#{name}_new_to_kept" => Statistics.ratio(new, kept))
        end
        figures.merge("longest_new_ms" => longest, "longest_new_to_kept" => Statistics.ratio(longest, figures["p50_kept_ms"]))
      end
    end
  end
end
