# frozen_string_literal: true

require_relative "../client"
require_relative "load"

module Bench
  module Measurements
    # Clients that ask different requests by turns, on connections that last for so many of them, one or several at a time.
    class Profile
      # A request, its share, and what it must get.
      Exchange = Struct.new(:request, :weight, :right)

      THREADS = 2
      # Seconds that a client waits at most while the server is warmed up: some leave clients waiting until these give up.
      PATIENCE = 2
      private_constant :THREADS, :PATIENCE

      # @param pipeline [Integer] how many requests a client sends before it waits for their answers
      # @param per_connection [Integer, nil] after how many answers a client connects anew
      def initialize(exchanges, pipeline: 1, per_connection: nil)
        @exchanges = exchanges
        @pipeline = pipeline
        @per_connection = per_connection
      end

      def kind = "profile"

      attr_reader :exchanges

      # @return [Hash{String => Numeric}] see Load.result, and `client_us`, the load generator's CPU time for a request; where requests are pipelined, latencies are those of all that are sent
      #   at once
      # @raise [RunningServer::Failed] when a request gets a wrong answer
      def run(bed)
        @exchanges.each { |exchange| ask(bed, exchange) }
        clients(bed, patience_s: PATIENCE).for_seconds(bed.warm_up)
        before, client = bed.tree.cpu_ns, reaped
        load = clients(bed).for_seconds(bed.seconds)
        cpu, client = bed.tree.cpu_ns - before, reaped - client
        answers = { requests: load[:requests] * @pipeline, in_time: (load[:in_time] * @pipeline) + load[:in_part] }
        result = Load.result(cpu, load.merge(answers))
        result["client_us"] = (client * 1e6 / result["requests"]).round(1) if result["requests"].positive?
        result["longest_gap_ms"] <= allowed_ms(result["rps"], bed.concurrency) ? result.merge("clients_served" => result["clients"]) : result
      end

      private

      # Seconds of CPU time of the programs that this process has started and that have ended.
      def reaped = Process.times.then { |times| times.cutime + times.cstime }

      # How long a client may wait, where it takes longer than the second by which clients are counted: twice as long as in one
      # queue with all that is asked.
      def allowed_ms(rps, clients) = rps.zero? ? 0 : 2e3 * clients * @pipeline / rps

      def ask(bed, exchange)
        status, body = Client.ask(bed.endpoint, exchange.request)
        return if status == 200 && exchange.right.call(body)

        raise RunningServer::Failed, "#{exchange.request.verb} #{exchange.request.path}: #{status} and #{body.bytesize} bytes, " \
                                     "which is wrong: #{body.scrub[0, 200]}"
      end

      def clients(bed, **options)
        requests = @exchanges.to_h { |exchange| [exchange.request, exchange.weight] }
        bed.closed_loop(requests: requests, pipeline: @pipeline, per_connection: @per_connection, threads: THREADS, **options)
      end
    end
  end
end
