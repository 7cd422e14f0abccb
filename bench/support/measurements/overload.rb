# frozen_string_literal: true

require_relative "../statistics"

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

      # @param bed [TestBed]
      # @return [Hash{String => Numeric}] `capacity`, requests per second of clients that wait as long as it takes; `offered`, those
      #   that came in a second of the overload; `answered_in_time`, as a share of the capacity; `refused`, with another
      #   status than 200, and `left`, whose clients had no answer in time, both per second; `p99_before_ms` and `p99_after_ms` of a
      #   small load before, and from a second after the overload, and `p99_kept`, the one over the other; `refusal_p99_ms`, what a
      #   refusal takes, nil if there are none; errors
      def run(bed)
        before = few(bed)
        saturated = bed.closed_loop(pause_ms: nil, new: bed.concurrency).for_seconds(bed.seconds)
        capacity = rate(saturated[:in_time], saturated)
        flood = flood(bed, capacity)
        sleep 1
        after = few(bed)
        errors = [before, saturated, after].sum { |load| load[:errors].values.sum } + flood[:errors].values_at(:connect, :read).sum
        { "capacity" => capacity.round(1), **self.class.answered(flood, capacity), **p99(before, after), **refusals(bed.endpoint), "errors" => errors }
      end

      # @param load [Hash] what ClosedLoop gave for the overload
      # @param capacity [Float] requests per second
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
          begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
          answer = endpoint.connect.then { |socket| socket.write(old) && socket.read.tap { socket.close } }
          return {} unless answer.start_with?("HTTP/1.1 503")

          (Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun) * 1e3
        end
        { "refusal_p99_ms" => Statistics.percentile(times.sort, 99).round(2) }
      end

      def rate(requests, load) = requests / (load[:duration_us] / 1e6)

      def p99(before, after)
        before, after = [before, after].map { |load| load[:p99_us] / 1e3 }
        { "p99_before_ms" => before, "p99_after_ms" => after, "p99_kept" => before.positive? ? after.fdiv(before).round(3) : nil }
      end
    end
  end
end
