# frozen_string_literal: true

require_relative "proc_stat"

module Fastrack
  # Reaps adopted processes. As process 1 of a container, or as a subreaper (prctl(2)), the master becomes the parent of processes whose
  # parents have ended, such as workers and the app's commands. The app itself waits for processes that it has started in the master.
  class Orphans
    # Seconds between two checks. A thread that waits for a zombie gets so much time.
    GRACE = 1

    # Notes the pids of processes that the app starts here. Ruby's other methods (`system`, backticks) wait for the process at once.
    module Spawn
      def spawn(...) = Orphans.own(super)

      def popen(...)
        super.tap { |io| Orphans.own(io.pid) if io.instance_of?(IO) && !io.closed? }
      end
    end

    @own = {}

    class << self
      # @return [Orphans, nil] nil if this process does not adopt processes
      def start
        return unless Fastrack.adopts_orphans?

        [Process.singleton_class, Kernel.singleton_class, IO.singleton_class].each { |one| one.prepend(Spawn) }
        Kernel.prepend(Module.new { private def spawn(...) = Orphans.own(super) })
        @pid = Process.pid
        new(@own)
      rescue SystemCallError
        # The system has no /proc.
        nil
      end

      # @return [Integer] the pid
      def own(pid)
        # Workers reap no adopted processes, and need no list.
        @own[pid] = true if @pid == Process.pid
        pid
      end
    end

    # @return [Float, nil] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param own [Hash{Integer => true}] pids of processes that the app has started here
    def initialize(own)
      @own = own
      @seen = []
      # Processes that the app has started while it was loaded.
      states.each_key { |pid| @own[pid] = true }
    end

    # Called whenever the master wakes up, because a child may have ended.
    def step(now)
      @due_at ||= now + GRACE
      return if now < @due_at

      started = @own.keys
      children = states
      (started - children.keys).each { |pid| @own.delete(pid) }
      zombies = children.filter_map { |pid, state| pid if state == "Z" && !@own.key?(pid) }
      (zombies & @seen).each { |pid| Process::Status.wait(pid, Process::WNOHANG) }
      @seen = zombies - @seen
      @due_at = @seen.any? ? now + GRACE : nil
    rescue SystemCallError
      # For example, no descriptor is free.
      @due_at = now + GRACE
    end

    private

    # @return [Hash{Integer => String}] this process's children, and their states in proc(5)
    def states = ProcStat.children(Process.pid).transform_values(&:first)
  end
end
