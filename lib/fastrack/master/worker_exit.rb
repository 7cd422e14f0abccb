# frozen_string_literal: true

require_relative "../clock"

module Fastrack
  # How a worker has ended, and what that says about it.
  class WorkerEnding
    # @return [Process::Status, nil]
    attr_reader :status

    # @param status [Process::Status, nil] nil where another part of the program has taken it
    # @param state [Symbol] the worker's last, see WorkerHandle
    # @param record [WorkerRecord] what it was at; let go of here
    def initialize(status, state, record)
      @status = status
      @state = state
      @overdue = record.overdue?
      @request = record.request(Clock.now)
      record.release
    end

    # Whether a signal has ended it.
    def killed?
      !@status.nil? && @status.signaled?
    end

    # Whether it has ended itself, because a request has taken too long.
    def overdue?
      @overdue
    end

    # Whether it says little about its successor, which need not wait.
    def sudden?
      killed? || overdue?
    end

    # Whether the log should have it.
    def notable?
      failed? || !@request.nil?
    end

    # Whether its successor would be likely to end the same way. One that ends by itself before it has served has failed,
    # whatever its status: a hook calls exit.
    def failed?
      return @state != :stopping if @status.nil?

      !@status.success? || @state == :booting
    end

    # @return [String] for the log, after the worker's name
    def to_s
      @request ? "#{manner}; it was #{@request}" : manner
    end

    private

    def manner
      return "has ended itself, with status #{Scoreboard::OVERDUE_STATUS}: a request has taken too long" if overdue? && !killed?
      return "was killed by SIG#{Signal.signame(@status.termsig)}" if killed?
      return "ended; its status is unknown, for the app has waited for it" if @status.nil?
      return "ended with status #{@status.exitstatus}" unless @status.success?

      @state == :booting ? "ended before it was ready" : "ended"
    end
  end
end
