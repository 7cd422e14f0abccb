# frozen_string_literal: true

require_relative "../log"

module Fastrack
  # Kills workers whose state lasts too long, so that no state lasts for ever:
  #
  #     booting                    WorkerBootTimeout
  #     serving, and in callbacks  the request's deadline, at which the worker ends by itself; unless it is stopped (SIGSTOP)
  #                                or blocked on a full log pipe, for example
  #     stopping, at_exit          GracefulTimeout, or the deadline of its request if that comes later
  #     lingering                  GracefulTimeout, once it was told to end (Lingering)
  #     any, but stopped           WorkerTimeout
  class WorkerTimeout
    # Minimum seconds between two checks.
    INTERVAL = 1

    # Seconds that a late worker gets to end by itself, or to log where it hangs.
    GRACE = 2

    # Limit of a state: its end (monotonic seconds), its option, the text for the log, the seconds from the end to the kill, and whether the
    # worker dumps its threads first.
    Limit = Struct.new(:at, :option, :text, :grace, :dump)
    private_constant :Limit

    # @param workers [Workers]
    def initialize(workers)
      @workers = workers
      @late = {}
      @not_before = 0
    end

    # @return [Float, nil] monotonic seconds when the next check is due; nil without time limits
    def due_at = [@due_at, @workers.lingering.due_at].compact.min

    # @param now [Float] monotonic seconds
    # @param configuration [Configuration]
    def step(now, configuration)
      @workers.lingering.step(now, configuration)
      states = @workers.each.map do |handle|
        [handle, handle.booting?, handle.ready?, handle.stopping_since, handle.reconsidered_at, handle.lingering?, handle.sent_away_at]
      end
      if states == @states
        return if @due_at.nil? || now < @due_at

        # If this process is late the machine may have stood still. Then workers get time as well.
        @not_before = now + GRACE if now > @due_at + INTERVAL
      end
      @states = states
      @configuration = configuration
      check_all(now)
    end

    private

    def check_all(now)
      late = @late
      @late = {}
      due = @workers.each.reject(&:killed?).flat_map do |handle|
        limits = [state_limit(handle, now), suspension_limit(handle, now)].compact.map { |limit| check(handle, limit, now, late) }
        limits << (handle.stopping? ? handle.stop_again(now) : handle.reconsidered_at)
      end
      earliest = due.compact.min
      @due_at = earliest && [earliest, now + INTERVAL].max
    end

    # @return [Float, nil] when to check again
    def check(handle, limit, now, late)
      return limit.at if now < limit.at

      key = [handle, limit.at]
      handle.dump_threads if limit.dump && !late.key?(key)
      @late[key] = late.fetch(key, now)
      at = [@late[key] + limit.grace, @not_before].max
      return at if now < at

      Log.line("#{handle.name} #{limit.text}", :error)
      handle.kill(limit.option)
      nil
    end

    def state_limit(handle, now)
      return linger_limit(handle) if handle.lingering?
      return stop_limit(handle, now) if handle.stopping_since
      return boot_limit(handle) if handle.booting? || (handle.first? && !handle.loaded?)

      # A request may begin at this moment, so an idle worker has the limit of a new request.
      at = handle.deadline || (now + @configuration.request_timeout if @configuration.request_timeout.positive?)
      Limit.new(at, "RequestTimeout", "does not exit: killing it; #{activity(handle, now)}", GRACE) if at
    end

    def boot_limit(handle)
      time = @configuration.worker_boot_timeout
      text = "has not been ready within #{format("%g", time)} s (WorkerBootTimeout): killing it"
      Limit.new(handle.spawned_at + time, "WorkerBootTimeout", text, GRACE, true) if time.positive?
    end

    # A worker that is told to stop before its hooks have run has nothing to finish.
    def stop_limit(handle, now)
      since = handle.stopping_since
      # At least INTERVAL, because the worker may have been told to stop just now.
      time = handle.ready? || handle.booting? ? @configuration.graceful_timeout : 0
      at = [since + [time, INTERVAL].max, handle.deadline].compact.max
      text = "has not finished within #{format("%.3g", at - since)} s: killing it; #{activity(handle, now)}"
      Limit.new(at, "GracefulTimeout", text, GRACE, true)
    end

    def linger_limit(handle)
      since = handle.sent_away_at or return
      time = [@configuration.graceful_timeout, INTERVAL].max
      text = "has not ended its streams and sockets within #{format("%g", time)} s: killing it"
      Limit.new(since + time, "GracefulTimeout", text, GRACE)
    end

    # Two checks tell whether a process stands still. No idle worker is woken for them.
    def suspension_limit(handle, now)
      time = @configuration.worker_timeout
      return unless time.positive?

      since = handle.suspended_since(now) or return Limit.new(now + (time / 2))
      text = "has been stopped by a signal or a debugger for #{format("%g", time)} s (WorkerTimeout): killing it"
      Limit.new(since + time, "WorkerTimeout", text, 0)
    end

    def activity(handle, now) = "it is serving #{handle.request(now) || "no request"}"
  end
end
