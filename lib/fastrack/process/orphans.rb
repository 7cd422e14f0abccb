# frozen_string_literal: true

require_relative "proc_stat"

module Fastrack
  # Reaps the processes that this one has adopted. As process 1 of a container, or as a subreaper (prctl(2)), it becomes the
  # parent of what workers and the app's commands leave behind. What the app has started in this process is the app's to
  # wait for.
  class Orphans
    # Seconds between two looks. A zombie is left for as long to a thread that may be waiting for it.
    GRACE = 1

    # Notes the pids of what this process starts. Ruby's other ways to do so (`system`, backticks) wait for it at once.
    module Spawn
      def spawn(...) = Orphans.own(super)

      def popen(...)
        super.tap { |io| Orphans.own(io.pid) if io.instance_of?(IO) && !io.closed? }
      end
    end

    @own = {}

    class << self
      # @return [Orphans, nil] nil if this process adopts none
      def start
        return unless Fastrack.adopts_orphans?

        [Process.singleton_class, Kernel.singleton_class, IO.singleton_class].each { |one| one.prepend(Spawn) }
        Kernel.prepend(Module.new { private def spawn(...) = Orphans.own(super) })
        @pid = Process.pid
        new(@own)
      rescue SystemCallError
        # There is no /proc.
        nil
      end

      # @return [Integer] the pid
      def own(pid)
        # Workers reap nothing, and need no list.
        @own[pid] = true if @pid == Process.pid
        pid
      end
    end

    # @return [Float, nil] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param own [Hash{Integer => true}] pids of what this process has started
    def initialize(own)
      @own = own
      @seen = []
      # What the app has started while it was loaded.
      states.each_key { |pid| @own[pid] = true }
    end

    # Called whenever the master wakes up: a child may have ended.
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
      # No descriptor is free, for example.
      @due_at = now + GRACE
    end

    private

    # @return [Hash{Integer => String}] this process's children, and their states in proc(5)
    def states = ProcStat.children(Process.pid).transform_values(&:first)
  end
end
