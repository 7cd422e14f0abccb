# frozen_string_literal: true

require_relative "../log"
require_relative "../process/held_child"
require_relative "../process/proc_stat"

module Fastrack
  # Ends processes of the app that a killed generation 0 has left behind. A generation 0 that ends in good order ends them itself
  # (MoldChildren). The master has adopted the processes, and signals nobody else.
  class Leftovers
    # Seconds from an event in the master to its look at the children of generation 0.
    LOOK_AFTER = 0.5

    # Seconds from TERM to KILL.
    TIME_TO_END = 5

    # @param workers [Workers]
    def initialize(workers)
      @workers = workers
      # Start times of children, by their pids, by the pid of their generation 0.
      @known = {}
      @ending = []
    end

    # @return [Float, nil] monotonic seconds when #step has something to do
    def due_at = [@look_at, @kill_at].compact.min

    # Called whenever the master wakes up, because generation 0 may have started something.
    def step(now)
      @look_at ||= now + LOOK_AFTER
      look if now >= @look_at
      @ending.reject!(&:ended?)
      @kill_at = nil if @ending.empty?
      kill if @kill_at && now >= @kill_at
    end

    # @param handle [MoldHandle] of a generation 0 that has ended
    def exited(handle, now)
      known = @known.delete(handle.pid) || {}
      left = known.select { |pid, start| start && ProcStat.start(pid) == start }.keys.filter_map { |pid| HeldChild.adopted(pid) }.reject(&:ended?)
      return if left.empty?

      Log.line("#{Log.count(left.size, "process", "processes")} of #{handle.name} #{left.size == 1 ? "is" : "are"} left, and told to end: #{left.map(&:pid).join(", ")}")
      left.each { |child| child.signal(:TERM) }
      @ending.concat(left)
      @kill_at = now + TIME_TO_END
    end

    private

    def look
      @look_at = nil
      @known = @workers.each.select(&:first?).to_h do |mold|
        [mold.pid, ProcStat.started_by(mold.pid).to_h { |pid| [pid, ProcStat.start(pid)] }]
      end
    end

    def kill
      @kill_at = nil
      @ending.each { |child| child.signal(:KILL) }
    end
  end
end
