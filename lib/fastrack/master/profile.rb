# frozen_string_literal: true

require_relative "../worker/message"

module Fastrack
  # The master's side of `fastrack profile`: one profile of one worker at a time. The worker may be the app's and hostile, so all that it
  # says is bounded, and counts only while its profile goes on.
  class Profile
    # Kinds of messages that belong to a profile.
    KINDS = [Message::PROFILE_FRAME, Message::PROFILE_STACK, Message::PROFILED].freeze

    # Bytes of frames and stacks that are kept.
    MOST_BYTES = 1 << 20

    # Reads of a channel in a row: what a socket holds, and a whole profile.
    READS = 2 * MOST_BYTES / 4096

    # Seconds that the worker has to tell its result. The worker itself gives up earlier: WorkerProfile::TIME.
    RESULT_TIME = 15

    # @param workers [Workers]
    def initialize(workers)
      @workers = workers
      @number = 0
    end

    # Begins the profile that a client has asked the monitor for, and publishes what has changed.
    #
    # @param monitor [Monitor]
    def serve(monitor)
      order = monitor.profile_order
      start(*order) if order
      return unless @changed

      require "json"
      @changed = false
      monitor.publish_profile(@state == "running", JSON.generate(to_h))
    end

    # @param message [Message] of one of KINDS
    # @param handle [WorkerHandle] its sender
    def receive(message, handle)
      return unless @state == "running" && handle.equal?(@handle)

      case message.kind
      when Message::PROFILED then finish("done")
      when Message::PROFILE_FRAME then keep(@frames, message.words)
      when Message::PROFILE_STACK then keep(@stacks, [message.words.first, message.words.last.split.map(&:to_i)])
      end
    end

    # Reads what the worker has told, because it may have ended: its channel is closed then.
    #
    # @param handle [WorkerHandle]
    # @yieldparam messages [Array<Message>]
    def rest_of(handle)
      empty = 0
      READS.times do
        return unless @state == "running" && handle.equal?(@handle) && handle.connected?

        found = handle.messages
        empty = found.empty? ? empty + 1 : 0
        # One read may end in the middle of a line.
        return if empty == 2

        yield found
      end
    end

    # @param now [Float]
    def step(now)
      return unless @state == "running"
      # A worker that is replaced has told what there is.
      return finish("done") unless @handle.connected?
      return if now < @due_at
      return finish("failed", "#{@handle.name} has not told its profile within #{RESULT_TIME} s") if @told

      @told = true
      @due_at = now + RESULT_TIME
      @handle.profile
    end

    # @return [Float, nil]
    def due_at = (@due_at if @state == "running")

    private

    def start(nr, seconds)
      @number += 1
      @frames, @stacks, @bytes, @told, @handle, @seconds = [], [], 0, false, serving(nr), seconds
      return finish("failed", Engine::PROFILE_SIGNAL ? "no worker #{nr} serves" : "this system has no signal for it") unless @handle && Engine::PROFILE_SIGNAL

      @state, @reason, @changed = "running", nil, true
      @due_at = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
      @handle.profile
    end

    def serving(nr) = @workers.all_but_first.find { |one| one.nr == nr && one.serving? && one.ready? && one.connected? }

    def keep(list, entry)
      @bytes += entry.flatten.sum { |one| one.is_a?(String) ? one.bytesize : 8 } + 40
      list << entry if @bytes <= MOST_BYTES
    end

    def finish(state, reason = nil)
      @state, @reason, @changed = state, reason, true
    end

    def to_h
      found = { number: @number, state: @state, reason: @reason, worker: @handle&.nr, pid: @handle&.pid, seconds: @seconds, frames: @frames, stacks: @stacks }
      @frames = @stacks = [] unless @state == "running"
      found
    end
  end
end
