# frozen_string_literal: true

require_relative "../log"

module Fastrack
  # The ways for a server to stop. Each is made when it begins, is stepped by the master until no worker is left, and says
  # when the next step is due. Times are monotonic seconds.
  module Shutdown
    # All workers finish the requests that they are at. Those that have not ended after GracefulTimeout are killed, so that
    # a server that was told to stop always does.
    class Graceful
      RANK = 2

      attr_reader :due_at

      def initialize(pool, configuration, now)
        @pool = pool
        @timeout = configuration.graceful_timeout
        @due_at = now + @timeout
        pool.each(&:stop)
      end

      def step(now)
        return if @due_at.nil? || now < @due_at

        @pool.each do |handle|
          Log.line("worker #{handle.nr} (pid #{handle.pid}) has not finished within #{format("%g", @timeout)} s, and is killed" \
                   "#{rest(handle, now)}")
          handle.kill
        end
        # They end when the kernel gets round to it, which CHLD tells.
        @due_at = nil
      end

      private

      # What is left behind. Connections of clients that are slow are no request of the app's.
      def rest(handle, now)
        request = handle.record.request(now)
        request ? ": it is #{request}" : ", with no request in the app"
      end
    end

    # Workers are ended one after the other, SpawnInterval apart; in their place those of another server take over.
    class Phased
      RANK = 1

      attr_reader :due_at

      def initialize(pool, configuration, now)
        @pool = pool
        @interval = configuration.spawn_interval
        @due_at = now
      end

      def step(now)
        return if @due_at.nil? || now < @due_at

        @pool.staying.first&.stop
        @due_at = @pool.staying.empty? ? nil : now + @interval
      end
    end

    # No worker finishes anything.
    class Quick
      RANK = 3

      attr_reader :due_at

      def initialize(pool, _configuration, _now)
        pool.each(&:kill)
      end

      def step(_now); end
    end
  end
end
