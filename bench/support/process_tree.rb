# frozen_string_literal: true

require "etc"
require_relative "clock"

module Bench
  # Some processes and all of their descendants, as Linux shows them in /proc (proc(5)).
  class ProcessTree
    CLOCK_TICKS = Etc.sysconf(Etc::SC_CLK_TCK)
    # CPUCLOCK_SCHED of the kernel's posix-timers.h: the scheduler's own count of a process's time.
    SCHEDULER_CLOCK = 2
    private_constant :CLOCK_TICKS, :SCHEDULER_CLOCK

    # @return [Boolean] whether the process runs; a zombie does not
    def self.alive?(pid)
      state = stat(pid)&.first
      !state.nil? && state != "Z"
    end

    # The fields of /proc/PID/stat after the program's name, which may hold spaces: [0] is the state, [1] the parent.
    #
    # @return [Array<String>, nil] nil when there is no such process
    def self.stat(pid)
      File.read("/proc/#{pid}/stat").rpartition(") ").last.split
    rescue Errno::ENOENT, Errno::ESRCH
      nil
    end

    # @param roots [Array<Integer>] pids
    def initialize(roots)
      @roots = roots
    end

    # @return [Hash{Integer => Array<Integer>}] children by their parent, of all processes of this moment; zombies are among them
    def self.children
      pids = Dir.children("/proc").grep(/\A\d+\z/).map(&:to_i)
      pids.group_by { |pid| stat(pid)&.at(1)&.to_i }
    end

    # @return [Array<Integer>] the roots that are there and all that descends from them
    def pids
      children = self.class.children
      found = @roots.select { |pid| stat(pid) }
      found.each { |pid| found.concat(children.fetch(pid, [])) }
    end

    # @return [Array<Integer>] pids of those whose title, or command line, begins so
    def titled(start)
      pids.select do |pid|
        File.read("/proc/#{pid}/cmdline").start_with?(start)
      rescue Errno::ENOENT, Errno::ESRCH
        false
      end
    end

    # Nanoseconds of CPU, user and system, that these processes have used since they began: threads
    # that have ended and children that have been reaped are in it. Only differences between two
    # calls mean something.
    #
    # A process's own time comes from its CPU clock, clock_getcpuclockid(3), which counts in
    # nanoseconds where the fields of /proc/PID/stat count in ticks of 10 ms; reaped children are
    # to be had in ticks only.
    def cpu_ns
      pids.sum { |pid| own_ns(pid) + reaped_ns(pid) }
    end

    # The same of each process that has no children: with a prefork server, of the workers.
    #
    # @return [Hash{Integer => Integer}] nanoseconds by pid
    def leaves_ns = (pids - self.class.children.keys).to_h { |pid| [pid, own_ns(pid)] }

    # @return [Integer] bytes of proportional set size: pages that n processes share count 1/n
    def pss_bytes
      pids.sum do |pid|
        File.read("/proc/#{pid}/smaps_rollup")[/^Pss:\s+(\d+) kB/, 1].to_i * 1024
      rescue Errno::ENOENT, Errno::ESRCH
        0
      end
    end

    # @return [Float] the same in MB (10^6 bytes)
    def pss_mb = (pss_bytes / 1e6).round(3)

    private

    def own_ns(pid)
      Process.clock_gettime((~pid << 3) | SCHEDULER_CLOCK, :nanosecond)
    rescue Errno::EINVAL # it has ended since
      0
    end

    def reaped_ns(pid) = stat(pid)&.values_at(13, 14).to_a.sum(&:to_i) * 1_000_000_000 / CLOCK_TICKS

    def stat(pid) = self.class.stat(pid)
  end
end
