# frozen_string_literal: true

require_relative "../error"
require_relative "../process/proc_stat"

module Fastrack
  # Waits for what comes of an order.
  class Waiting
    # Seconds between two looks.
    PAUSE = 0.1

    # @param signal [String]
    # @param limit [Float] seconds to wait; 0: for ever
    # @param log [String, nil] the server's, where it is known
    def initialize(signal, limit, log = nil)
      @signal = signal
      @limit = limit
      @log = log
      @started = now
    end

    # @return [Float] seconds until all was done
    # @raise [Error] with the reason
    def await
      loop do
        return now - @started if done?

        raise Error, complaint(late) if @limit.positive? && now - @started > @limit
        sleep(PAUSE)
      end
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def complaint(what) = "#{@signal} has failed: #{what}#{log_line}"

    def log_line = @log && "; its log is #{@log}"
  end

  # Waits until new workers, or those of a new master, have answered that they are ready. The monitor of the master that has the order
  # tells what has come of that; if that master ends meanwhile, the new one's tells what it is at.
  class StartWaiting < Waiting
    # Seconds without a monitor and without a new master, until the server is gone.
    GONE = 3

    # @param sent [Hash] see MonitorClient#order
    # @param place [#call] gives the MonitorClient for a master's pid
    def initialize(sent, limit, log, &place)
      super(sent["sent"], limit, log)
      @master = sent["pid"]
      @after = sent["after"]
      @place = place
    end

    private

    def done?
      status = look(@master)
      return judge(order(status)) if status && status["pid"] == @master

      status ||= look(@new) if @new
      note_missing(status)
      raise Error, complaint("the server is gone#{@last}") if @missing_since && now - @missing_since > GONE

      heir_ready?(status)
    end

    def look(pid) = @place.call(pid)&.status

    # @return [Hash, nil] the one that was sent: the first of its kind since then
    def order(status) = status["orders"].find { |one| one["number"] > @after && one["signal"] == @signal }

    def judge(order)
      @missing_since = nil
      @new = order["pid"] || @new if order
      raise Error, complaint("the old code serves on (pid #{@master}): #{order["reason"]}") if order && order["state"] == "failed"

      !order.nil? && order["state"] == "done"
    end

    # The other master's workers.
    def heir_ready?(status)
      return false if status.nil? || status["pid"] == @master

      @new = status["pid"]
      @last = ": #{exit_of(status)}" if status["last_exits"].any?
      status["phase"] == "serving" && status["workers_ready"] >= [status["workers_wanted"], 1].max
    end

    def exit_of(status) = status["last_exits"].first.then { |one| "worker #{one["worker"]} #{one["text"]}" }

    # Between two masters nobody may listen, for as long as a hook of the new one takes.
    def note_missing(status)
      @missing_since = status || (@new && ProcStat.running?(@new)) ? nil : @missing_since || now
    end

    def late = "it is not ready after #{@limit.round} s (pid #{@new || @master})#{@last}"
  end

  # Waits until a server's masters have ended, which do so after all of their workers.
  class StopWaiting < Waiting
    # Made before the signal is sent.
    #
    # @param masters [Array<Integer>] pids that this process can see
    # @yieldreturn [Boolean] whether the server still runs; asked where it can see none
    def initialize(masters, limit, log, &running)
      # Killed workers, hooks and at_exit blocks may take 5 s when the server's own time is over.
      super("TERM", limit + 5, log)
      # With its start, a pid names one process for ever.
      @masters = masters.to_h { |pid| [pid, ProcStat.start(pid)] }.select { |pid, _| ProcStat.running?(pid) }
      @running = running
    end

    private

    def done? = @masters.empty? ? !@running.call : left.empty?

    def left = @masters.select { |pid, start| ProcStat.running?(pid) && ProcStat.start(pid) == start }.keys

    def late = "it still runs#{" (fastrack master, pid #{left.join(", ")})" if left.any?} after #{@limit.round} s"
  end
end
