# frozen_string_literal: true

require_relative "../log"
require_relative "fit"
require_relative "limit"
require_relative "process_memory"

module Fastrack
  # Keeps the master and its workers below a limit of memory: beyond it the largest worker is replaced, before the kernel
  # kills any. One at a time, and only if that sets memory free; with MaxWorkers=auto there is one worker less if it does not.
  class MemoryGuard
    # Seconds between two looks at the memory, the fewer the nearer the limit is.
    LOOKS = (0.1..2.0).freeze

    # Seconds from the end of one worker to the next that is replaced; twice as many each time if they live for less than a moment.
    SPACING = (2..60).freeze
    MOMENT = 10

    # Seconds until the first look whether all workers will fit.
    FORESIGHT = 5

    # What a worker has to have grown by, as a share of the limit, to be replaced.
    GAIN = 0.02

    # @return [Float] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param workers [Workers]
    # @param limit [MemoryLimit]
    # @param auto [Boolean] whether the number of workers is this server's to choose
    def initialize(workers, limit, auto:)
      @workers = workers
      @limit = limit
      @auto = auto
      @due_at = @settled_at = 0.0
      @spacing = SPACING.begin
      @kills = limit.kills
      # What each worker had for itself when it had served first, and the master when it was seen first, by pid.
      @fresh = {}
      @masters = {}
    end

    # @return [Integer] bytes
    def used
      @limit.used([Process.pid, *@workers.each.map(&:pid)])
    end

    # @return [MemoryFit, nil] nil before a worker has served
    def fit(used = self.used)
      handles = serving
      return unless handles.any? { |handle| handle.requests.positive? }

      # One that has just died has none.
      own = handles.map { |handle| ProcessMemory.of(handle.pid).private }.select(&:positive?)
      MemoryFit.new(@limit, used, own) if own.any?
    end

    # @param now [Float] monotonic seconds
    def step(now)
      @due_at = now + LOOKS.end
      used = self.used
      note_fresh
      @due_at = now + pause(used, now)
      @told = false if used < @limit.bytes * (1 - GAIN)
      mourn if @limit.kills > @kills
      await_end(now)
      if used > @limit.bytes then relieve(used, now)
      elsif !@auto then foresee(used, now)
      end
    end

    private

    def serving
      @workers.each.select(&:serving?)
    end

    def note_fresh
      master = ProcessMemory.resident(Process.pid).last
      @masters = serving.to_h { |handle| [handle.pid, @masters[handle.pid] || master] }
      @fresh = serving.to_h do |handle|
        [handle.pid, @fresh[handle.pid] || (own(handle) if handle.requests.positive?)]
      end
    end

    # @return [Integer, nil] bytes; nil for one that has just died
    def own(handle)
      ProcessMemory.resident(handle.pid).last.nonzero?
    end

    # What a fresh one would have: what it shares with the master since its fork, and what that one that had least had beyond it.
    # So a master that grows makes none of those that were forked since then large.
    def fresh(handle)
      beyond = @fresh.filter_map { |pid, size| size && [size - @masters[pid], 0].max }.min
      beyond && (@masters[handle.pid] + beyond)
    end

    # A quarter of the time in which the limit would be reached. What grows suddenly is seen in time only if there is much room.
    def pause(used, now)
      growth = @looked_at ? (used - @used) / [now - @looked_at, 0.001].max : 0
      @used = used
      @looked_at = now
      room = [@limit.bytes - used, 0].max.to_f
      [growth.positive? ? room / growth / 4 : LOOKS.end, room / @limit.bytes * LOOKS.end * 4].min.clamp(LOOKS)
    end

    # It may end between two looks: then the time counts from when it was to be replaced.
    def await_end(now)
      return if @leaving.nil?

      @settled_at = now + @spacing
      @leaving = nil if @workers.each.none? { |handle| handle.pid == @leaving.pid }
    end

    def relieve(used, now)
      return if now < @settled_at

      sizes = serving.to_h { |handle| [handle, ProcessMemory.resident(handle.pid).last] }
      largest, size = sizes.max_by { |handle, bytes| bytes - @masters[handle.pid] }
      fresh = fresh(largest) if largest
      fresh && size - fresh > @limit.bytes * GAIN ? recycle(largest, used, size, fresh, now) : in_vain(used, sizes, now)
    end

    def recycle(handle, used, size, fresh, now)
      age = now - handle.spawned_at
      Log.line("memory: #{ProcessMemory.format(used)} in use, limit #{@limit}: recycling worker #{handle.nr} (pid #{handle.pid}), " \
               "the largest: #{ProcessMemory.format(size)} after #{Log.count(handle.requests.to_i, "request")} in #{age.round} s; a fresh one has " \
               "#{ProcessMemory.format(fresh)}, the master #{master}")
      @leaving = handle
      @spacing = age < MOMENT ? [@spacing * 2, SPACING.end].min : SPACING.begin
      handle.recycle(:memory)
    end

    def in_vain(used, sizes, now)
      text = "memory: #{ProcessMemory.format(used)} in use, limit #{@limit}, with #{Log.count(sizes.size, "worker")} of " \
             "#{sizes.values.map { |size| ProcessMemory.format(size) }.join(", ")}, and the master's #{master}"
      @settled_at = now + SPACING.begin
      return tell_of_shortage(text, sizes.keys) unless @auto && @workers.size > 1

      @workers.size -= 1
      Log.line("#{text}: changing to #{Log.count(@workers.size, "worker")}")
    end

    # Looks less and less often whether the workers will fit once all have grown as the largest has.
    def foresee(used, now)
      @foresee_at ||= now + FORESIGHT
      return if now < @foresee_at || @foreseen

      @foresee_after = (@foresee_after || FORESIGHT) * 2
      @foresee_at = now + @foresee_after
      fit = self.fit(used)
      return if fit.nil? || fit.workers >= @workers.size

      @foreseen = true
      Log.line("memory: #{@workers.size} workers will not fit, #{fit.workers} would (#{fit})")
    end

    # The kernel was faster.
    def mourn
      count = @limit.kills - @kills
      @kills = @limit.kills
      text = "memory: the kernel has killed #{count} process#{"es" unless count == 1} because of the limit (#{@limit})"
      return Log.line("#{text}: fewer workers or more memory would do") unless @auto && @workers.size > 1

      @workers.size -= 1
      Log.line("#{text}: changing to #{Log.count(@workers.size, "worker")}")
    end

    # Once, until there is room again.
    def tell_of_shortage(text, handles)
      Log.line("#{text}: #{advice(handles)}") unless @told
      @told = true
    end

    def advice(handles)
      workers = handles.sum { |handle| ProcessMemory.of(handle.pid).private }
      if ProcessMemory.resident(Process.pid).last > [workers, @limit.bytes / 2].max
        "the master is what is large: recycling gains nothing, a restart (USR2) does if it has grown"
      else
        "fresh workers take as much, recycling gains nothing; fewer workers or more memory would"
      end
    end

    def master
      ProcessMemory.format(ProcessMemory.resident(Process.pid).last)
    end
  end
end
