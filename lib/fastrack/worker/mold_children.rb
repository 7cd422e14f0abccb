# frozen_string_literal: true

require_relative "../log"
require_relative "../process/held_child"
require_relative "../process/proc_stat"

module Fastrack
  # Programs and processes that the app starts in a mold, in before_fork for example. They end with the mold, because the next mold starts
  # its own. A process that leaves its parent (daemon(3)) stays.
  class MoldChildren
    # Seconds from TERM to KILL, at most.
    TIME_TO_END = 5

    # Seconds between two looks at the children.
    CHECK_INTERVAL = 0.02

    # @param name [#call] the mold's, for the log
    # @param seconds [Numeric] that the mold has for its end
    # @param others [#call] pids of children that are not the app's
    def initialize(name, seconds, &others)
      @name = name
      @time = [TIME_TO_END, seconds / 2.0].min
      @others = others
      @before = ProcStat.started_by(Process.pid)
    end

    # Ends the children when the mold exits, after the app's own at_exit hooks.
    def end_at_exit
      mold = Process.pid
      at_exit { end_all if Process.pid == mold }
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def end_all
      children = (ProcStat.started_by(Process.pid) - @before - @others.call).filter_map { |pid| HeldChild.adopted(pid) }.reject(&:ended?)
      return if children.empty?

      Log.line("#{@name.call} ends #{Log.count(children.size, "process", "processes")} of the app: #{children.map(&:pid).join(", ")}")
      children.each { |child| child.signal(:TERM) }
      ends = now + @time
      sleep CHECK_INTERVAL until children.all?(&:ended?) || now > ends
      children.each { |child| child.signal(:KILL) }
    end
  end
end
