# frozen_string_literal: true

require_relative "control_channel"

module Fastrack
  # A replaced worker that has served its last request, and goes on without new ones. It waits for its clients' streams, and for sockets
  # that the app has taken over (WebSockets). The app's threads run on meanwhile. The master says when the worker is to end (Lingering).
  class Linger
    # Seconds between two looks at the sockets, which the app closes without a word.
    CHECK_INTERVAL = 0.25

    # Seconds that the app gets to close its last sockets, once they were shut down.
    TIME_TO_CLOSE = 1

    # @param engine [Engine]
    # @param channel [ControlChannel] to the master
    # @param wanted [Boolean] whether the worker is to linger at all
    def initialize(engine, channel, wanted)
      @engine = engine
      @channel = channel
      @wanted = wanted
      @leaves = false
    end

    # Whether the worker lingers, or has lingered.
    def begun? = !@thread.nil?

    # Tells the master that only streams and sockets are left. From then on a thread obeys its orders.
    def begin
      return if begun? || !@wanted

      @channel.write("#{ControlChannel::LINGERING} #{@engine.streams} #{@engine.sockets}")
      @thread = Thread.new { obey }
      @thread.name = "fastrack linger"
    end

    # Returns when the app has closed its sockets, or the master has given them up.
    def await_sockets
      return if !@wanted || @leaves || @engine.sockets.zero?

      self.begin
      @thread.join(CHECK_INTERVAL) while @thread.alive? && !@engine.sockets.zero?
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # Obeys the master's orders. Returns after the last order, or when the master is gone: then the sockets are cut.
    def obey
      loop do
        if @channel.to_io.wait_readable(@next_at && [@next_at - now, 0].max)
          messages = @channel.read or return
          messages.each { |message| take(message) }
          return if @leaves && @engine.streams.zero?
        elsif @engine.end_one
          @next_at = now + pause
        else
          return await_close
        end
      end
    rescue IOError
      # The app has closed the channel.
      nil
    end

    def take(message)
      case message.kind
      when ControlChannel::LEAVE then @leaves = true
      when ControlChannel::END_ALL
        @next_at = now
        @ends_at = now + message.words.first
      end
    end

    # Seconds until the next stream or socket is ended, so that the clients do not all come back at once.
    def pause
      left = @engine.streams + @engine.sockets
      [(@ends_at - now) / [left, 1].max, 0].max
    end

    def await_close
      ends = now + TIME_TO_CLOSE
      sleep 0.02 until @engine.sockets.zero? || now > ends
    end
  end
end
