# frozen_string_literal: true

require_relative "../single_queue"
require_relative "../statistics"
require_relative "load"
require_relative "new_clients"

module Bench
  module Measurements
    # Latencies of requests that take differently long, beside those of an ideal single queue.
    class Mix
      PERCENTILES = [50, 95, 99].freeze
      private_constant :PERCENTILES

      # @param paths [Hash{String => Integer}] the requests' paths, and the weight of each
      # @param new_share [Numeric] how many of the clients connect anew for each request, from 0 to 1
      # @param routers [Integer, nil] who keeps the connections, see ClosedLoop
      # @param at_once [Integer, nil] where workers have several threads: how many requests each of them serves at once in the
      #   ideal: as many as there are threads where requests wait, 1 where they compute
      def initialize(paths, new_share: 0, routers: nil, at_once: nil)
        @paths = paths
        @new_share = new_share
        @routers = routers
        @at_once = at_once
      end

      def kind
        return "router" if @routers
        return "mix-threads" if @at_once

        @new_share.zero? ? "mix" : "mix-new"
      end

      # @param bed [TestBed]
      # @return [Hash{String => Numeric}] see Load.result; latencies and service times of each path; `ideal_pN_ms`; and
      #   `pN_to_ideal`; where there are clients that connect anew, see NewClients.figures
      def run(bed)
        clients = bed.closed_loop(paths: @paths, new_clients: (bed.concurrency * @new_share).round, routers: @routers)
        clients.for_seconds(bed.warm_up / 2)
        trace = bed.file("trace")
        before = bed.tree.cpu_ns
        load = clients.for_seconds(bed.seconds, trace: trace)
        result = Load.result(bed.tree.cpu_ns - before, load).merge(by_path(load))
        result.merge!(NewClients.figures(load)) if load[:new]
        ideal = self.class.ideal(clients.samples(trace), servers: bed.workers * (@at_once || 1), clients: bed.concurrency)
        result.merge(ideal, ratios(result, ideal))
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

      def by_path(load)
        load[:kinds].each_with_object({}) do |(path, figures), result|
          name = path.to_s.delete_prefix("/")
          result["p50_#{name}_ms"] = figures[:p50_us] / 1e3
          result["p99_#{name}_ms"] = figures[:p99_us] / 1e3
          result["service_#{name}_ms"] = figures[:service_mean_us]&.fdiv(1e3)
        end
      end

      def ratios(result, ideal)
        PERCENTILES.each_with_object({}) do |percent, ratios|
          best = ideal["ideal_p#{percent}_ms"]
          ratios["p#{percent}_to_ideal"] = result["p#{percent}_ms"].fdiv(best).round(3) if best&.positive?
        end
      end
    end
  end
end
