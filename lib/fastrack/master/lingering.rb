# frozen_string_literal: true

require_relative "../log"
require_relative "../worker/control_channel"

module Fastrack
  # Retired workers that go on (Linger) while their successors serve: for their clients' streams, and for sockets that the app has taken
  # over. If the clients of a worker do not leave, the worker sends them away, one after the other:
  #
  # - after Linger;
  # - earlier for the oldest worker, if more workers linger than serve, or memory is short (MemoryGuard);
  # - within GracefulTimeout when the server stops.
  #
  # After TERM no other server takes the place of this one: its workers wait for streams, and leave the sockets.
  class Lingering
    # Share of GracefulTimeout over which a worker spreads the ends. After GracefulTimeout the worker is killed.
    SPREAD_SHARE = 0.5

    # Seconds before the end of GracefulTimeout at which a server that stops sends the clients away, but no more than half of it.
    STOP_TIME = 3

    # Seconds if memory is short: those over which the ends are spread, and those after which the next worker has to go.
    MEMORY_SPREAD = 2
    MEMORY_TIME = 5

    # @return [Float, nil] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param workers [Workers]
    def initialize(workers)
      @workers = workers
      @leaves = false
    end

    # A worker lingers from now on.
    #
    # @param handle [WorkerHandle]
    # @param streams [Integer]
    # @param sockets [Integer]
    # @param now [Float] monotonic seconds
    def add(handle, streams, sockets, now)
      return if handle.lingering?

      handle.linger(now)
      return handle.leave_sockets if @leaves

      Log.line("#{handle.name} lingers for #{Log.count(streams, "stream")} and #{Log.count(sockets, "socket")}")
    end

    # The server stops.
    #
    # @param now [Float] monotonic seconds
    def stop(now)
      @stop_at = now
    end

    # The server stops for good: nobody waits for sockets.
    def leave_sockets
      @leaves = true
      lingering.each(&:leave_sockets)
    end

    # @param now [Float] monotonic seconds
    # @param configuration [Configuration]
    def step(now, configuration)
      staying = self.staying
      return @due_at = nil if staying.empty?

      staying.take([staying.size - most, 0].max).each do |handle|
        send_away(handle, now, configuration.graceful_timeout * SPREAD_SHARE, "more than #{most} linger")
      end
      staying.each { |handle| send_late_away(handle, now, configuration) }
      @due_at = self.staying.map { |handle| end_of(handle, configuration) }.min
    end

    # Sends away the clients of the worker that has lingered for longest. One worker at a time.
    #
    # @param now [Float] monotonic seconds
    # @return [Boolean] false if no worker's end would set memory free
    def make_room(now)
      return true if lingering.any? { |handle| handle.sent_away_at && now - handle.sent_away_at < MEMORY_TIME }

      oldest = staying.first or return false
      send_away(oldest, now, MEMORY_SPREAD, "memory is short")
      true
    end

    private

    def lingering = @workers.each.select(&:lingering?)

    # Workers that have not been told to send their clients away, the oldest first.
    def staying = lingering.reject(&:sent_away_at).sort_by(&:lingering_since)

    # The most workers that may linger: the scoreboard has room for each worker and one more process.
    def most = [@workers.size, (2 * Option::Types::MOST_WORKERS) - @workers.size - Workers::STOPPING].min

    # @return [Float] monotonic seconds
    def end_of(handle, configuration)
      at = handle.lingering_since + configuration.linger
      return at unless @stop_at

      [at, [@stop_at, handle.stopping_since].max + configuration.graceful_timeout - stop_time(configuration)].min
    end

    def stop_time(configuration) = [STOP_TIME, configuration.graceful_timeout / 2].min

    def send_late_away(handle, now, configuration)
      return if handle.sent_away_at || now < end_of(handle, configuration)

      late = "#{format("%g", configuration.linger)} s are over (Linger)"
      time, reason = @stop_at ? [stop_time(configuration), "the server stops"] : [configuration.graceful_timeout, late]
      send_away(handle, now, time * SPREAD_SHARE, reason)
    end

    # @param seconds [Float] over which the ends are spread
    def send_away(handle, now, seconds, reason)
      Log.line("#{handle.name} ends its streams and sockets: #{reason}")
      handle.send_away(now, seconds)
    end
  end

  # The part of WorkerHandle for workers that linger.
  module LingeringWorker
    # @return [Float, nil] monotonic seconds when the worker had served its last request
    attr_reader :lingering_since

    # @return [Float, nil] monotonic seconds when the worker was told to send its clients away
    attr_reader :sent_away_at

    def lingering? = !@lingering_since.nil? && !@ended

    # Called when LINGERING has arrived.
    #
    # @param now [Float] monotonic seconds
    def linger(now)
      @lingering_since = now
      @stopping_since ||= now
      @state = :stopping
    end

    # Has the worker exit after its last stream, and leave its sockets without a word.
    def leave_sockets = @channel.write(ControlChannel::LEAVE)

    # Has the worker end its streams and sockets.
    #
    # @param now [Float] monotonic seconds
    # @param seconds [Float] over which the ends are spread
    def send_away(now, seconds)
      @sent_away_at = now
      @channel.write("#{ControlChannel::END_ALL} #{seconds}")
    end

    # Whether the worker has streams, or the app has hijacked connections of it.
    def keeps_clients? = hijacked != @hijacked || scoreboard(:counts)&.dig(:connections, :streaming).to_i.positive?
  end
end
