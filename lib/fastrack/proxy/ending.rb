# frozen_string_literal: true

require "json"

module Fastrack
  module Proxy
    # How long a proxy that is to end waits for its clients, in seconds after the order. crates/proxy/src/ending.rs has the other side.
    class Ending
      # Seconds in which a kept client may ask once more where another proxy has the same workers, but no more than half of GracefulTimeout.
      # The response says that the connection ends.
      IDLE_TIME = 5

      # The same where no other server is known to take over, as in a worker.
      LAST_IDLE_TIME = 0.25

      # Seconds before the end of GracefulTimeout at which a worker of a server that stops ends its streams and sockets, but no more than
      # half of it (Lingering). The proxy ends what is left after half of that.
      STOP_TIME = 3

      # Seconds that a process gets to end itself after its time.
      TIME_TO_END = 1

      class << self
        # Another proxy has taken over after a HUP. Workers that the HUP has replaced end their streams and sockets after Linger; the proxy
        # ends those of other workers then.
        #
        # @param configuration [Configuration]
        # @param linger [Float] seconds
        # @return [Ending]
        def replaced(configuration, linger: configuration.linger)
          time = configuration.graceful_timeout
          lingers_until = linger + (linger.positive? ? time : time / 2.0)
          new(idle: idle_time(time), linger: lingers_until, spread: time / 4.0, cut: lingers_until + time, tunnels: linger.positive?)
        end

        # The server stops.
        #
        # @param configuration [Configuration]
        # @param other [Symbol, nil] whose server takes over: :ours (USR2), or :supervised (start_server, systemd)
        # @param sockets [Boolean] whether sockets are waited for, as after QUIT
        # @return [Ending]
        def stopped(configuration, other:, sockets:)
          time = configuration.graceful_timeout
          rest = [STOP_TIME, time / 2.0].min / 2.0
          idle = { ours: idle_time(time), supervised: time / 2.0 }.fetch(other, LAST_IDLE_TIME)
          new(idle: idle, linger: time - rest, spread: rest / 2.0, cut: time, tunnels: sockets)
        end

        private

        def idle_time(time) = [IDLE_TIME, time / 2.0].min
      end

      # @param times [Hash]
      def initialize(**times)
        @times = times
      end

      # @return [String]
      def to_line = "end #{JSON.generate(@times)}\n"

      # @return [Float] seconds until the process is killed
      def kill_after = @times[:cut] + TIME_TO_END
    end
  end
end
