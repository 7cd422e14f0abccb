# frozen_string_literal: true

require_relative "../configuration/option"
require_relative "../log"
require_relative "../process/cpus"
require_relative "../process/proc_stat"
require_relative "limit"
require_relative "spare_worker"

module Fastrack
  # The number of workers that a machine can use: the smaller of what its CPUs and its memory allow. MaxWorkers=auto and
  # `fastrack tune` use the same formula.
  module WorkerCount
    # The least share of a request's time that counts as computing. An app that only waits would otherwise get workers without end.
    LEAST_COMPUTING = 1 / 64.0

    module_function

    # @param cpu [Float] seconds that requests have computed
    # @param total [Float] seconds that the same requests have lasted
    # @return [Float] the share of a request's time in which it computes
    def computing(cpu, total) = total.positive? ? (cpu / total).clamp(LEAST_COMPUTING, 1.0) : 1.0

    # @param cpus [Float] CPUs that the workers may use
    # @param computing [Float] see .computing
    # @return [Integer] workers that keep these CPUs busy
    def by_cpus(cpus, computing) = (cpus / computing).round.clamp(1..)

    # @param limit [Integer] bytes that all processes together may take
    # @param rest [Integer] bytes that are no worker's own, and those that workers share
    # @param own [Integer] bytes that one worker takes for itself
    # @return [Integer] workers that fit; 0 if there is no room for one
    def by_memory(limit, rest:, own:) = ((limit - rest) / [own, 1].max).clamp(0..)
  end

  # MaxWorkers=auto: adds workers while all are busy, as long as WorkerCount allows more, and takes away what was not needed for long.
  class AutoWorkers
    # Seconds between two looks while there are requests.
    LOOK_INTERVAL = 0.25

    # Looks until a decision: 5 s.
    DECISION_LOOKS = 20

    # The number of workers at the start. A worker may come to take as much memory as the process that has loaded the app.
    #
    # @param limit [MemoryLimit]
    # @param cpus [Integer]
    # @param pid [Integer] of the process that has loaded the app
    # @return [Array(Integer, String)] workers, and the figures
    def self.start(limit, cpus, pid = Process.pid)
      used = limit.used([])
      loaded = ProcessMemory.resident(pid).first
      allowed = WorkerCount.by_memory(limit.bytes, rest: used, own: loaded).clamp(1..)
      [[cpus, allowed].min, "limit #{limit}, in use #{ProcessMemory.format(used)}, generation 0 #{ProcessMemory.format(loaded)}"]
    end

    # @return [Float] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param workers [Workers]
    # @param guard [MemoryGuard]
    # @param spare [SpareWorker]
    # @param capacity [Float] CPUs
    def initialize(workers, guard, spare, capacity = CPUs.new.capacity)
      @workers = workers
      @guard = guard
      @spare = spare
      @capacity = capacity
      @due_at = 0.0
      restart
    end

    # @param now [Float] monotonic seconds
    def step(now)
      # Without requests, as seldom as the guard.
      @due_at = now + MemoryGuard::LOOK_INTERVALS.end
      shrink(now)
      return restart if idle?

      @due_at = now + LOOK_INTERVAL
      return restart unless settled?

      @since, @before = now, clocks if @looks.zero?
      look
      return if @looks < DECISION_LOOKS

      decide(now - @since)
      restart
    end

    private

    def restart
      @looks = @busy = @all_busy = @waiting = 0
    end

    # @return [Boolean] false while new workers grow, and while replaced ones finish their requests
    def settled?
      handles = @workers.each.reject(&:mold?)
      handles.size == @workers.size && handles.all?(&:serving?)
    end

    # @return [Boolean] whether no request came since the last call
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

    def shrink(now)
      size = @workers.size
      figures = @spare.look(now, size, @workers.each.count(&:busy?)) { @workers.scoreboard.totals[:queue_time] } or return
      Log.line("workers auto: changing from #{size} to #{size - 1} (#{figures})")
      @workers.size = size - 1
    end

    # Time in the queue for a CPU counts as computing: it is a sign of too many workers.
    #
    # @return [Hash{Integer => Float}] by pid, seconds that each worker has computed or waited for a CPU
    def clocks
      @workers.each.to_h do |handle|
        [handle.pid, ProcStat.cpu_seconds(handle.pid) + ProcStat.queued_seconds(handle.pid)]
      rescue SystemCallError
        [handle.pid, 0]
      end
    end

    def decide(seconds)
      # One more worker helps if all are busy half of the time.
      return if @all_busy * 2 < DECISION_LOOKS

      computed = clocks.sum { |pid, clock| [clock - @before.fetch(pid, clock), 0].max }
      computing = WorkerCount.computing(computed, @busy * seconds / DECISION_LOOKS)
      by_cpus = WorkerCount.by_cpus(@capacity, computing)
      fit, by_memory = @guard.fit
      size = [@workers.size + step_size, by_cpus, Option::Types::MOST_WORKERS, *fit].min
      grow(size, "computing #{(computing * 100).round} % of their requests' time on #{format("%.4g", @capacity)} CPUs: " \
                 "#{by_cpus}; #{by_memory}: #{fit}")
    end

    # A quarter more from eight workers on, but no more than clients wait.
    def step_size
      (@workers.size / 4).clamp(1, [@waiting, 1].max)
    end

    def grow(size, figures)
      return if size <= @workers.size

      Log.line("workers auto: changing from #{@workers.size} to #{size} (all busy in #{@all_busy} of #{DECISION_LOOKS} looks; #{figures})")
      @workers.size = size
    end
  end
end
