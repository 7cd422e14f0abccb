# frozen_string_literal: true

module Fastrack
  # What the master knows of a worker without asking it, alive or dead: the worker's slot of the scoreboard.
  class WorkerRecord
    # Seconds beyond a request's limit after which a worker that is still there cannot end itself any more. What it has
    # to do by then takes it a second at most.
    GRACE = 2

    # @return [Array(Scoreboard, Integer), nil] where the worker writes; nil where the scoreboard is full
    attr_reader :place

    # @param scoreboard [Scoreboard]
    def initialize(scoreboard)
      @scoreboard = scoreboard
      slot = scoreboard.reserve
      @place = slot && [scoreboard, slot]
    end

    # The worker is gone, or was never there. To be called once.
    def release
      @scoreboard.release(@place.last) if @place
      @place = nil
    end

    # @param now [Float] monotonic seconds
    # @return [String, nil] the request that the worker is at, or was at when it died, for the log; nil when there is none
    def request(now)
      entry = read
      return if entry.nil? || entry[:state] == :waiting

      seconds = format("%.1f", [now - entry[:started], 0].max)
      "at #{entry[:line] || "a request"} for #{seconds} s#{", request id #{entry[:id]}" if entry[:id]}"
    end

    # Whether the worker has said that it ends because a request has taken too long.
    def overdue?
      entry = read
      !entry.nil? && entry[:state] == :ending
    end

    # When the worker will have had all the time that it may have for a request and for its own end.
    #
    # @param timeout [Float] seconds that a request may take; 0: any
    # @return [Float, nil] monotonic seconds, to be asked for anew when they have come; nil when that may be never
    def stuck_at(now, timeout)
      entry = read
      return if entry.nil?
      return entry[:deadline] + GRACE unless entry[:state] == :waiting || entry[:deadline].nil?

      # That of a request that begins right now.
      now + timeout + GRACE if timeout.positive?
    end

    private

    def read
      @place && @scoreboard.read(@place.last)
    end
  end
end
