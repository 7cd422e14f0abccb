# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "auto_workers"
require_relative "limit"

module Fastrack
  # The master's control of memory and of the number of workers: see MemoryGuard and AutoWorkers.
  class MemorySupervisor
    # @return [Float, nil] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param workers [Workers]
    # @param proxy [Proxy::Supervisor, nil]
    def initialize(workers, proxy = nil)
      @workers = workers
      @proxy = proxy
      @supervised = []
    end

    # Sets the first number of workers (MaxWorkers=auto). Called before a worker is spawned.
    def start(configuration)
      return unless ProcessMemory.known?

      size, figures = guarded { AutoWorkers.start(limit(configuration), @workers.size, @workers.source_pid) }
      @least = size
      return if size.nil? || size == @workers.size

      @workers.size = size
      Log.line("workers auto: starting with #{size} (#{figures})")
    end

    # Called when all workers serve.
    def begin(configuration)
      return if configuration.equal?(@configuration)

      @configuration = configuration
      @supervised = guarded { create(configuration) } || []
      @due_at = (0.0 if @supervised.any?)
    end

    # @param configuration [Configuration] that a HUP may have changed
    def step(now, configuration)
      self.begin(configuration)
      @supervised.each { |one| guarded { one.step(now) } if now >= one.due_at }
      @due_at = @supervised.map(&:due_at).min
    end

    private

    # Logs an error of a look at /proc, for example when no descriptor is free. A later look may succeed.
    def guarded
      yield
    rescue StandardError, NoMemoryError => e
      reason = Error.reason(e)
      Log.line("cannot look at the memory: #{reason}", :error) unless reason == @reason
      @reason = reason
      nil
    end

    def create(configuration)
      return unmeasured(configuration) unless ProcessMemory.known?

      limit = self.limit(configuration) or return []
      auto = configuration.auto_workers?
      guard = MemoryGuard.new(@workers, limit, auto: auto, proxy: @proxy)
      return [guard] unless auto

      @least ||= @workers.size
      [guard, AutoWorkers.new(@workers, guard, SpareWorker.new(configuration.auto_idle_time, @least))]
    end

    # Warns where the system does not tell the private memory of a process. The memory of a cgroup is known even there.
    def unmeasured(configuration)
      { MaxMemory: configuration.max_memory, MaxMemoryPerChild: configuration.max_memory_per_child }.compact.each_key do |name|
        Log.line("#{configuration.source(name)} has no effect: #{ProcessMemory::UNKNOWN}")
      end
      limit = MemoryLimit.find(configuration)
      limit.is_a?(MemoryLimit::CgroupLimit) ? [MemoryGuard.new(@workers, limit, auto: false, proxy: @proxy)] : []
    end

    # @return [MemoryLimit, nil]
    def limit(configuration)
      MemoryLimit.find(configuration) || (MemoryLimit::MachineLimit.new if configuration.auto_workers?)
    end
  end

  # Keeps the master, its proxies and its workers below a limit of memory. Beyond the limit the largest worker is replaced, before the kernel kills any:
  # one worker at a time, and only if its replacement frees memory. If it does not, MaxWorkers=auto goes on with one worker less.
  class MemoryGuard
    # Seconds between two looks at the memory. The nearer the limit is, the sooner is the next look.
    LOOK_INTERVALS = (0.1..2.0).freeze

    # Seconds from the end of one worker to the replacement of the next. They double each time a worker has lived for less than 10 s: then
    # the limit is too low for the workers.
    SPACING = (2..60).freeze

    # Least growth of a worker that is replaced, as a share of the limit.
    LEAST_GAIN = 0.02

    # @return [Float] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param workers [Workers]
    # @param limit [MemoryLimit]
    # @param auto [Boolean] whether the server chooses the number of workers
    # @param proxy [Proxy::Supervisor, nil]
    def initialize(workers, limit, auto:, proxy: nil)
      @workers = workers
      @proxy = proxy
      @limit = limit
      @auto = auto
      @due_at = @settled_at = 0.0
      @spacing = SPACING.begin
      @kills = limit.kills
      # By pid: private memory of each worker after its first request, and of its mold when the worker was seen first.
      @fresh = {}
      @molds = {}
    end

    # @return [Integer] bytes
    def used(**how)
      @limit.used(@workers.each.to_a, proxies: @proxy&.pids.to_a, **how)
    end

    # The number of workers that fit into the limit, if each takes as much as the largest one: see WorkerCount.by_memory.
    #
    # @return [Array(Integer, String), nil] workers, and the figures; nil before a worker has served
    def fit
      handles = serving
      own = handles.filter_map { |handle| handle.memory&.private }
      return if own.empty? || handles.sum(&:requests).zero?

      rest = [used(exact: true) - own.sum, 0].max
      [WorkerCount.by_memory(@limit.bytes, rest: rest, own: own.max),
       "limit #{@limit}, shared #{ProcessMemory.format(rest)}, each worker #{ProcessMemory.format(own.max)}"]
    end

    # @param now [Float] monotonic seconds
    def step(now)
      @due_at = now + LOOK_INTERVALS.end
      used = self.used
      note_fresh
      @due_at = now + pause(used)
      @told = false if used < @limit.bytes * (1 - LEAST_GAIN)
      note_kernel_kills if @limit.kills > @kills
      await_end(now)
      if used > @limit.bytes then replace_largest(used, now)
      elsif !@auto then warn_unless_all_fit(now)
      end
    end

    private

    def serving
      @workers.each.select(&:serving?)
    end

    def note_fresh
      mold = ProcessMemory.resident(@workers.source_pid).last
      @molds = serving.to_h { |handle| [handle.pid, @molds[handle.pid] || mold] }
      @fresh = serving.to_h do |handle|
        [handle.pid, @fresh[handle.pid] || (own(handle) if handle.requests.positive?)]
      end
    end

    # @return [Integer, nil] bytes; nil for a worker that has just died
    def own(handle)
      ProcessMemory.resident(handle.pid).last.nonzero?
    end

    # Private memory of a fresh worker: that of its mold at the fork, and the least that any worker had beyond its mold. So workers of a
    # mold that has grown do not count as large.
    def fresh(handle)
      beyond = @fresh.filter_map { |pid, size| size && [size - @molds[pid], 0].max }.min
      beyond && (@molds[handle.pid] + beyond)
    end

    # The less room is left, the sooner the next look: memory may grow suddenly.
    def pause(used)
      ((@limit.bytes - used).fdiv(@limit.bytes) * LOOK_INTERVALS.end * 4).clamp(LOOK_INTERVALS)
    end

    # The replaced worker may end between two looks. Then the time counts from the order to replace it.
    def await_end(now)
      return if @leaving.nil?

      @settled_at = now + @spacing
      @leaving = nil if @workers.each.none? { |handle| handle.pid == @leaving.pid }
    end

    def replace_largest(used, now)
      return if @workers.lingering.make_room(now) || now < @settled_at

      sizes = serving.to_h { |handle| [handle, ProcessMemory.resident(handle.pid).last] }
      largest, size = sizes.max_by { |handle, bytes| bytes - @molds[handle.pid] }
      fresh = fresh(largest) if largest
      fresh && size - fresh > @limit.bytes * LEAST_GAIN ? recycle(largest, used, size, fresh, now) : report_no_gain(used, sizes, now)
    end

    def recycle(handle, used, size, fresh, now)
      age = now - handle.spawned_at
      Log.line("memory: #{ProcessMemory.format(used)} in use, limit #{@limit}: recycling worker #{handle.nr} (pid #{handle.pid}), " \
               "the largest: #{ProcessMemory.format(size)} after #{Log.count(handle.requests.to_i, "request")} in #{age.round} s; a fresh one has " \
               "#{ProcessMemory.format(fresh)}, #{source} #{source_size}")
      @leaving = handle
      @spacing = age < 10 ? [@spacing * 2, SPACING.end].min : SPACING.begin
      handle.recycle(:memory)
    end

    def report_no_gain(used, sizes, now)
      @settled_at = now + SPACING.begin
      text = "memory: #{ProcessMemory.format(used)} in use, limit #{@limit}, with #{Log.count(sizes.size, "worker")} of " \
             "#{sizes.values.map { |size| ProcessMemory.format(size) }.join(", ")}, and #{source}'s #{source_size}"
      return if shrink(text) || @told

      # Logged once, until there is room again.
      @told = true
      Log.line("#{text}: #{advice(sizes.keys)}")
    end

    # @return [Boolean] whether there is a worker less now
    def shrink(text)
      return false unless @auto && @workers.size > 1

      @workers.size -= 1
      Log.line("#{text}: changing to #{Log.count(@workers.size, "worker")}")
      true
    end

    # Warns if the workers will not fit once all have grown as the largest has. The look is costly. The first one comes after 5 s, when the
    # workers of before a HUP have mostly ended. Each later one comes after twice as long.
    def warn_unless_all_fit(now)
      @began ||= now
      return if @warned || now < (@warn_at ||= now + 5)

      @warn_at = now + (now - @began)
      fit, figures = self.fit
      return if fit.nil? || fit >= @workers.size

      @warned = true
      Log.line("memory: #{@workers.size} workers will not fit, #{fit} would (#{figures})")
    end

    # The kernel has killed processes before this class replaced a worker.
    def note_kernel_kills
      count = @limit.kills - @kills
      @kills = @limit.kills
      text = "memory: the kernel has killed #{count} process#{"es" unless count == 1} because of the limit (#{@limit})"
      shrink(text) || Log.line("#{text}: fewer workers or more memory would do")
    end

    def advice(handles)
      workers = handles.filter_map(&:memory).sum(&:private)
      if ProcessMemory.resident(@workers.source_pid).last > [workers, @limit.bytes / 2].max
        "#{source} is what is large: recycling gains nothing, HUP or USR2 does if it has grown"
      else
        "fresh workers take as much, recycling gains nothing; fewer workers or more memory would"
      end
    end

    # The process that workers share most with.
    def source = @workers.mold ? "the mold" : "generation 0"

    def source_size
      ProcessMemory.format(ProcessMemory.resident(@workers.source_pid).last)
    end
  end
end
