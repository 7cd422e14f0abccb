# frozen_string_literal: true

require_relative "../log"
require_relative "../process/cpus"
require_relative "process_memory"

module Fastrack
  # MaxWorkers=auto: adds workers while all are busy, as long as CPUs and memory allow. How many a CPU takes is measured: a worker
  # that waits for a database for three quarters of its requests' time leaves room for three others.
  class AutoWorkers
    # Seconds between two looks while there are requests, and while there are none.
    SAMPLE = 0.25
    REST = 5.0

    # Looks until a decision: 5 s.
    SAMPLES = 20

    # The share of looks that must have found all workers busy for one more to be of use.
    DEMAND = 0.5

    # What is counted as computing at least, so that there is an end for an app that only waits.
    LEAST = 1 / 64.0

    TICKS = Etc.sysconf(Etc::SC_CLK_TCK).to_f

    # How many to begin with: each may come to take as much as the master, which has loaded the app.
    #
    # @param limit [MemoryLimit]
    # @param cpus [Integer]
    # @return [Array(Integer, String)] workers, and the figures
    def self.start(limit, cpus)
      used = limit.used([Process.pid])
      master = [ProcessMemory.resident(Process.pid).first, 1].max
      allowed = ((limit.bytes - used) / master).clamp(1..)
      [[cpus, allowed].min, "limit #{limit}, in use #{ProcessMemory.format(used)}, master #{ProcessMemory.format(master)}"]
    end

    # @return [Float] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param workers [Workers]
    # @param guard [MemoryGuard]
    # @param capacity [Float] CPUs
    def initialize(workers, guard, capacity = CPUs.new.capacity)
      @workers = workers
      @guard = guard
      @capacity = capacity
      @due_at = 0.0
      restart
    end

    # @param now [Float] monotonic seconds
    def step(now)
      @due_at = now + REST
      idle = idle?
      @due_at = now + (idle ? REST : SAMPLE)
      return restart if idle || !settled?

      begin_window(now) if @looks.zero?
      look
      return if @looks < SAMPLES

      decide(now - @since)
      restart
    end

    private

    def restart
      @looks = @busy = @all_busy = @waiting = 0
    end

    def begin_window(now)
      @since = now
      @before = clocks
    end

    # New workers are still growing, and old ones still at work.
    def settled?
      handles = @workers.each.to_a
      handles.size == @workers.size && handles.all?(&:serving?)
    end

    # Whether there was no request since it was asked last.
    def idle?
      before = @requests
      @requests = @workers.each.map { |handle| [handle.pid, handle.requests] }
      @requests == before && @workers.each.none?(&:busy?)
    end

    def look
      busy = @workers.each.count(&:busy?)
      @looks += 1
      @busy += busy
      @all_busy += 1 if busy >= @workers.size
      @waiting = [@waiting, @workers.scoreboard.totals[:connections][:waiting]].max
    end

    # Seconds that each worker has computed, or waited for a CPU, which is a sign of too many.
    def clocks
      @workers.each.to_h do |handle|
        [handle.pid, computing_time(handle.pid)]
      rescue SystemCallError
        [handle.pid, 0]
      end
    end

    # Some kernels count no waiting.
    def computing_time(pid)
      threads = Dir.glob("/proc/#{pid}/task/*/schedstat").map { |file| File.read(file).split.first(2).sum(&:to_i) }
      return threads.sum / 1e9 if threads.any?(&:positive?)

      File.read("/proc/#{pid}/stat").split(") ").last.split.values_at(11, 12).sum(&:to_i) / TICKS
    end

    def decide(seconds)
      return if @all_busy < SAMPLES * DEMAND

      busy = @busy * seconds / SAMPLES
      computing = (clocks.sum { |pid, clock| [clock - @before.fetch(pid, clock), 0].max } / busy).clamp(LEAST, 1.0)
      by_cpus = (@capacity / computing).round.clamp(1..)
      fit = @guard.fit
      size = [@workers.size + step_size, by_cpus, *fit&.workers].min
      grow(size, "computing #{(computing * 100).round} % of their requests' time on #{format("%.4g", @capacity)} CPUs: " \
                 "#{by_cpus}; #{fit}: #{fit&.workers}")
    end

    # From eight on a quarter more, if that many clients wait.
    def step_size
      (@workers.size / 4).clamp(1, [@waiting, 1].max)
    end

    def grow(size, figures)
      return if size <= @workers.size

      Log.line("workers auto: changing from #{@workers.size} to #{size} (all busy in #{@all_busy} of #{SAMPLES} looks; #{figures})")
      @workers.size = size
    end
  end
end
