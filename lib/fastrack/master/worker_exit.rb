# frozen_string_literal: true

module Fastrack
  # How a worker has exited.
  #
  # @attr status [Process::Status, nil] nil when a part of the app has waited for the process
  # @attr state [Symbol] last state, see WorkerHandle
  # @attr timed_out [Boolean] whether the worker exited because of a request timeout
  # @attr request [String, nil] the request that the worker was serving
  # @attr killed_for [String, nil] why the master has killed the worker
  WorkerExit = Struct.new(:status, :state, :timed_out, :request, :killed_for, keyword_init: true) do
    # Whether a signal or a request timeout ended the worker, so that a replacement will probably not fail.
    def sudden? = killed? || timed_out

    # @return [Symbol] why a worker that nobody has told to stop is replaced: see Scoreboard#count_restart
    def cause
      return :request_timeout if timed_out
      return :signal if killed?
      return :boot if state == :booting

      failed? ? :failure : :exit
    end

    # Whether to log the exit.
    def notable? = failed? || !request.nil?

    # Whether a replacement may fail in the same way. An exit before READY is a failure even with status 0: a hook calls
    # exit.
    def failed?
      return state != :stopping if status.nil?

      !status.success? || state == :booting
    end

    # @return [String] for the log, after the worker's name
    def to_s
      request ? "#{manner} while serving #{request}" : manner
    end

    private

    def killed? = !status.nil? && status.signaled?

    def manner
      # The line names the master, because SIGKILL alone reads like the kernel's out-of-memory killer.
      return "was killed by the master (#{killed_for})" if killed_for && killed? && status.termsig == Signal.list["KILL"]
      return "was killed by SIG#{Signal.signame(status.termsig) || status.termsig}" if killed?
      return "exited with status #{Scoreboard::TIMEOUT_STATUS} (request timeout)" if timed_out
      return "exited; its status is unknown, because the app has waited for it" if status.nil?
      return "exited with status #{status.exitstatus}" unless status.success?

      state == :booting ? "exited before it was ready" : "exited"
    end
  end
end
