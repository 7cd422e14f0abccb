# frozen_string_literal: true

require_relative "../error"
require_relative "../process/proc_stat"

module Fastrack
  # Waits for the outcome of an order.
  class Waiting
    # Seconds between two checks.
    CHECK_INTERVAL = 0.1

    # @param signal [String]
    # @param limit [Float] seconds to wait; 0: for ever
    # @param log [String, nil] path of the server's log, if known
    def initialize(signal, limit, log = nil)
      @signal = signal
      @limit = limit
      @log = log
      @started = now
    end

    # @return [Float] seconds until the order was done
    # @raise [Error] with the reason
    def await
      loop do
        return now - @started if done?

        raise Error, complaint(late) if @limit.positive? && now - @started > @limit
        sleep(CHECK_INTERVAL)
      end
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def complaint(what) = "#{@signal} has failed: #{what}#{log_line}"

    def log_line = @log && "; its log is #{@log}"
  end

  # Waits until new workers, or workers of a new master, are ready. The monitor of the master that got the order tells the outcome. If that
  # master ends meanwhile, the new master's monitor tells its state.
  class StartWaiting < Waiting
    # Seconds without a monitor and without a new master after which the server counts as ended.
    GONE_AFTER = 3

    # @param sent [Hash] see MonitorClient#order
    # @param client [#call] returns the MonitorClient for a master's pid
    def initialize(sent, limit, log, &client)
      super(sent["sent"], limit, log)
      @master = sent["pid"]
      @after = sent["after"]
      @client = client
    end

    private

    def done?
      status = look(@master)
      return judge(order(status)) if status && status["pid"] == @master

      status ||= look(@new) if @new
      note_missing(status)
      raise Error, complaint("the server is gone#{@last}") if @missing_since && now - @missing_since > GONE_AFTER

      heir_ready?(status)
    end

    # @return [Hash, nil]
    def look(pid)
      @client.call(pid)&.status
    rescue Error => e
      # A monitor that is about to end may cut a connection.
      @last = ": #{e.message}"
      nil
    end

    # @return [Hash, nil] the order that was sent: the first of its kind since then
    def order(status) = status["orders"].find { |one| one["number"] > @after && one["signal"] == @signal }

    def judge(order)
      @missing_since = nil
      @new = order["pid"] || @new if order
      raise Error, complaint("the old code serves on (pid #{@master}): #{order["reason"]}") if order && order["state"] == "failed"

      !order.nil? && order["state"] == "done"
    end

    # Whether the new master's workers are ready.
    def heir_ready?(status)
      return false if status.nil? || status["pid"] == @master

      @new = status["pid"]
      @last = ": #{exit_of(status)}" if status["last_exits"].any?
      status["phase"] == "serving" && status["workers_ready"] >= [status["workers_wanted"], 1].max
    end

    def exit_of(status) = status["last_exits"].first.then { |one| "worker #{one["worker"]} #{one["text"]}" }

    # Notes since when neither master answers. Between two masters nobody listens while a hook of the new one runs.
    def note_missing(status)
      @missing_since = status || (@new && ProcStat.running?(@new)) ? nil : @missing_since || now
    end

    def late = "it is not ready after #{@limit.round} s (pid #{@new || @master})#{@last}"
  end

  # Waits until a server's masters have ended. A master ends after its workers.
  class StopWaiting < Waiting
    # The object is made before the signal is sent.
    #
    # @param masters [Array<Integer>] pids of the masters that this process can see
    # @yieldreturn [Boolean] whether the server still runs; asked if no master is visible
    def initialize(masters, limit, log, &running)
      # After the server's own time, killed workers, hooks and at_exit blocks may take 5 s.
      super("TERM", limit + 5, log)
      # A pid and a start time together identify one process.
      @masters = masters.to_h { |pid| [pid, ProcStat.start(pid)] }.select { |pid, _| ProcStat.running?(pid) }
      @running = running
    end

    private

    def done? = @masters.empty? ? !@running.call : left.empty?

    def left = @masters.select { |pid, start| ProcStat.running?(pid) && ProcStat.start(pid) == start }.keys

    def late = "it still runs#{" (fastrack master, pid #{left.join(", ")})" if left.any?} after #{@limit.round} s"
  end
end
