# frozen_string_literal: true

require_relative "load"

module Bench
  module Measurements
    # Answers in time when twice as many requests come as it can serve, from clients that connect anew and leave when
    # they have no answer after a while.
    class Overload
      # Seconds until a client leaves.
      PATIENCE = 2
      # Milliseconds that a client pauses for, on average. The longer, the less does the rate depend on what is answered.
      PAUSE = 6_000.0
      # Requests that come, as a multiple of those that can be served.
      TIMES = 2
      # Clients of the loads before and after, who seldom wait for each other.
      FEW = { connections: 4, pause_ms: 100.0 }.freeze
      # Requests that have waited for longer than any server allows, when they come.
      REFUSALS = 500
      private_constant :PATIENCE, :PAUSE, :TIMES, :FEW, :REFUSALS

      def kind = "overload"

      # @return [Hash{String => Numeric}] OVERLOAD of report/columns.rb, and errors. The capacity is of clients that wait as long as it takes;
      #   `left` are those without an answer in time
      def run(bed)
        before = few(bed)
        saturated = bed.closed_loop(pause_ms: nil, new: bed.concurrency).for_seconds(bed.seconds)
        capacity = Load.rate(saturated)
        flood = flood(bed, capacity)
        sleep 1
        after = few(bed)
        errors = Load.errors(before, saturated, after) + flood[:errors].values_at(:connect, :read).sum
        { "capacity" => capacity.round(1), **self.class.answered(flood, capacity), **Load.p99("p99_before_ms" => before, "p99_after_ms" => after), **refusals(bed.endpoint), "errors" => errors }
      end

      # @return [Hash{String => Numeric}] see #run
      def self.answered(load, capacity)
        seconds = load[:duration_us] / 1e6
        refused, left = load[:errors].values_at(:status, :timeout)
        { "offered" => ((load[:requests] + refused + left) / seconds).round(1), "answered_in_time" => (load[:in_time] / seconds / capacity).round(3),
          "refused" => (refused / seconds).round(1), "left" => (left / seconds).round(1) }
      end

      private

      def few(bed) = bed.closed_loop(new: FEW[:connections], **FEW).for_seconds(bed.seconds)

      # A client's wait comes on top of its pause.
      def flood(bed, capacity)
        clients = bed.scaled((TIMES * capacity * ((PAUSE / 1e3) + PATIENCE)).round)
        bed.closed_loop(connections: clients, new: clients, pause_ms: PAUSE, patience_s: PATIENCE).for_seconds(bed.seconds * 2)
      end

      # By the header of routers, on one connection after the other.
      def refusals(endpoint)
        old = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Request-Start: t=#{Time.now.to_i - 60}\r\n\r\n"
        times = Array.new(REFUSALS) do
          begun = Bench.now
          answer = endpoint.connect.then { |socket| socket.write(old) && socket.read.tap { socket.close } }
          return {} unless answer.start_with?("HTTP/1.1 503")

          (Bench.now - begun) * 1e3
        end
        { "refusal_p99_ms" => Statistics.percentile(times.sort, 99).round(2) }
      end
    end
  end
end
