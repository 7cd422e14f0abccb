# frozen_string_literal: true

require_relative "../bystanders"
require_relative "load"

module Bench
  module Measurements
    # The cost of slow clients for the others.
    class SlowClients
      # Clients that send a byte of their head each second, and that read one of /1m.
      CLIENTS = { senders: 64, readers: 64, path: "/1m", interval_ms: 1_000, bytes: 1 }.freeze
      # A client that reads 640 KB of /50m each second: it would take longer than any measurement.
      HUGE = { readers: 1, path: "/50m", interval_ms: 100, bytes: 65_536 }.freeze
      # How often the server is measured without and with them. Which comes first changes: what slows the machine down
      # for a while is in both.
      TURNS = 4
      # The others beside the huge answer pause, so that what delays them is not that they are many.
      OTHERS = { connections: 8, pause_ms: 5.0 }.freeze
      private_constant :CLIENTS, :HUGE, :TURNS, :OTHERS

      def kind = "slow"

      # @return [Hash{String => Numeric}] SLOW of report/columns.rb; errors, and what Served says of the others
      def run(bed)
        bed.clients.for_seconds(bed.warm_up)
        crowd = crowd(bed)
        alone = bed.closed_loop(**OTHERS).for_seconds(2 * bed.seconds)
        beside, = Bystanders.trickle(bed.endpoint, **HUGE) { bed.closed_loop(**OTHERS).for_seconds(2 * bed.seconds) }
        loads = [*crowd.flatten, alone, beside]
        lost(*crowd).merge("max_alone_ms" => alone[:max_us] / 1e3, "max_beside_ms" => beside[:max_us] / 1e3,
                           "errors" => Load.errors(*loads), **Served.of(*loads))
      end

      private

      def crowd(bed)
        alone = []
        beside = []
        TURNS.times do |turn|
          both = [-> { alone << bed.clients.for_seconds(bed.seconds) }, -> { beside << beside_slow(bed) }]
          (turn.even? ? both : both.reverse).each(&:call)
        end
        [alone, beside]
      end

      def lost(alone, beside)
        broken = beside.map { |load| load[:broken] }
        rates = [alone, beside].map { |loads| Load.rate(*loads).round(1) }
        kept = Statistics.ratio(rates.last, rates.first)
        { "rps_alone" => rates.first, "rps_beside" => rates.last, "rps_kept" => kept, "broken" => broken.sum }
      end

      def beside_slow(bed)
        load, broken = Bystanders.trickle(bed.endpoint, **CLIENTS) { bed.clients.for_seconds(bed.seconds) }
        load.merge(broken: broken)
      end
    end
  end
end
