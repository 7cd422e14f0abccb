# frozen_string_literal: true

module Bench
  module Measurements
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
