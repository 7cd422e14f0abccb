# frozen_string_literal: true

module Fastrack
  # How a worker has ended, and what that says about it.
  class WorkerEnding
    # @return [Process::Status, nil]
    attr_reader :status

    # @param status [Process::Status, nil] nil where another part of the program has taken it
    # @param state [Symbol] the worker's last, see WorkerHandle
    def initialize(status, state)
      @status = status
      @state = state
    end

    # Whether a signal has ended it.
    def killed?
      !@status.nil? && @status.signaled?
    end

    # Whether its successor would be likely to end the same way. One that ends by itself before it has served has failed,
    # whatever its status: a hook calls exit.
    def failed?
      return @state != :stopping if @status.nil?

      !@status.success? || @state == :booting
    end

    # @return [String] for the log, after the worker's name
    def to_s
      return "was killed by SIG#{Signal.signame(@status.termsig)}" if killed?
      return "ended; its status is unknown, for the app has waited for it" if @status.nil?
      return "ended with status #{@status.exitstatus}" unless @status.success?

      @state == :booting ? "ended before it was ready" : "ended"
    end
  end
end
