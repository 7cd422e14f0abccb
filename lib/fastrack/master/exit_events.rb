# frozen_string_literal: true

module Fastrack
  # The events for the hook after_worker_exit, a part of Workers. The hook runs where the app is: in generation 0, or else in the mold. An event
  # waits while there is neither, until another generation 0 has loaded the app.
  module ExitEvents
    # Most events that wait. Beyond them the oldest one is forgotten.
    MOST_WAITING = 1000

    # @return [MoldHandle, nil] generation 0; nil if it has ended
    attr_reader :first

    # @param mold [MoldHandle, nil]
    def first=(mold)
      @first = mold
      send_exits
    end

    private

    # @param handle [WorkerHandle]
    # @param exited [WorkerExit]
    def note_exit(handle, exited)
      return unless configuration.after_worker_exit

      exits << [handle.nr, handle.pid, handle.generation, exited.status.to_i]
      exits.shift if exits.size > MOST_WAITING
    end

    # An event also waits while the channel is full, or has lost its other end without the master's knowledge.
    def send_exits
      home = @first || mold
      return unless home&.ready?

      exits.shift while exits.any? && home.event(:after_worker_exit, *exits.first)
    end

    def exits = @exits ||= []
  end
end
