# frozen_string_literal: true

require "etc"

module Fastrack
  # Reads /proc/PID/stat and other files of /proc, see proc(5). Only Linux has these files.
  module ProcStat
    # Ticks per second of the clock that times in /proc/PID/stat count in.
    TICKS = Etc.sysconf(Etc::SC_CLK_TCK).to_f

    module_function

    # @param pid [Integer]
    # @return [Array<String>] fields of /proc/PID/stat after the name in parentheses: state, parent and so on
    # @raise [SystemCallError] when there is no such process
    def of(pid) = File.read("/proc/#{pid}/stat").rpartition(")").last.split

    # @return [Hash{Integer => Array<String>}] the fields of all processes, by pid
    def all
      Dir.children("/proc").grep(/\A\d+\z/).to_h { |pid| [pid.to_i, of_living(pid)] }.compact
    end

    # @return [Hash{Integer => Array<String>}] the fields of all children of a process, by pid
    def children(parent) = all.select { |_, fields| fields[1].to_i == parent }

    # @return [Array<Integer>] pids of the children that a process has started, by any of its threads; empty where the system does not tell
    def started_by(parent)
      Dir.glob("/proc/#{parent}/task/*/children").flat_map { |file| File.read(file).split.map(&:to_i) }
    rescue SystemCallError
      # A thread has ended.
      []
    end

    # @return [Float] CPU seconds of a process
    def cpu_seconds(pid) = of(pid).values_at(11, 12).sum(&:to_i) / TICKS

    # @return [Float] seconds that a process's threads have waited for a CPU; some kernels do not count them
    # @raise [SystemCallError]
    def queued_seconds(pid) = Dir.glob("/proc/#{pid}/task/*/schedstat").sum { |file| File.read(file).split[1].to_i / 1e9 }

    # @return [Float] seconds since a process was started
    # @raise [SystemCallError, NameError] without such a process or clock
    def age(pid) = Process.clock_gettime(Process::CLOCK_BOOTTIME) - (of(pid)[19].to_i / TICKS)

    # @return [String, nil] start time of a process in ticks since the machine's boot. Start time and pid together identify a process for
    #   ever
    def start(pid) = of_living(pid)&.at(19)

    # @return [Hash{String => String}] /proc/PID/status
    # @raise [SystemCallError] when there is no such process
    def status(pid) = File.read("/proc/#{pid}/status").b.scan(/^(\w+):\s*(.*)$/).to_h

    # @return [Array<Integer>] real, effective, saved and file system's user id of a process
    # @raise [SystemCallError]
    def users(pid) = status(pid).fetch("Uid").split.map(&:to_i)

    # @param number [Integer] of the capability, see linux/capability.h
    # @return [Boolean] whether a process has the capability
    # @raise [SystemCallError, KeyError] where the system does not tell
    def capable?(pid, number) = !status(pid).fetch("CapEff").hex[number].zero?

    # @return [Integer, nil] a process's pid in its own container
    def inner_pid(pid)
      status(pid)["NSpid"]&.split&.last&.to_i
    rescue SystemCallError
      nil
    end

    # @return [Boolean] also for a process that has ended and is not reaped
    def exists?(pid)
      Process.kill(0, pid)
      true
    rescue Errno::ESRCH, RangeError
      false
    rescue SystemCallError
      # The process belongs to another user.
      true
    end

    # @return [Boolean] false also for a process that has ended and is not reaped
    def running?(pid) = exists?(pid) && of_living(pid)&.first != "Z"

    def of_living(pid)
      of(pid)
    rescue SystemCallError
      nil
    end
    private_class_method :of_living
  end

  # The process title of masters, see Launcher#title.
  module MasterTitle
    PATTERN = /\Afastrack master(?: \[[^\0]*\])?\0*\z/n.freeze

    # @param pid [Integer]
    # @return [Boolean] whether a process has a master's title; false also without /proc. Any process may set such a title.
    def self.of?(pid)
      PATTERN.match?(File.binread("/proc/#{pid}/cmdline"))
    rescue SystemCallError
      false
    end
  end
end
