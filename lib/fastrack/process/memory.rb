# frozen_string_literal: true

require "etc"
require_relative "proc_stat"

module Fastrack
  # Memory of a process in bytes (proc(5)). `pss` is the process's own pages and its share of shared pages, swap included. `private` is the
  # process's own pages: the end of the process frees them, and one more such process takes as many.
  ProcessMemory = Struct.new(:pss, :private)

  # Text for the log on systems without smaps_rollup.
  ProcessMemory::UNKNOWN = "this system does not tell the memory of a process (/proc/PID/smaps_rollup)"

  class << ProcessMemory
    # The bit of CAP_SYS_PTRACE (linux/capability.h).
    SYS_PTRACE = 19
    private_constant :SYS_PTRACE

    # Whether the system tells the memory of processes.
    def known? = File.readable?("/proc/self/smaps_rollup")

    # Whether that process may not read this process's `smaps_rollup` (ptrace(2), access mode checking). A root master without
    # CAP_SYS_PTRACE, as in Docker, may not read those of another user's worker. In /proc, a process that has changed its user or has
    # capabilities belongs to root.
    def hidden_from?(pid)
      return false if ["self", pid].all? { |one| File.stat("/proc/#{one}").owned? }

      !ProcStat.capable?(pid, SYS_PTRACE)
    rescue SystemCallError
      true
    end

    # Resident memory. Cheap, because the kernel keeps these figures.
    #
    # @param pid [Integer, String]
    # @return [Array(Integer, Integer)] resident bytes, and the anonymous part of them; zeros for a process that has ended
    def resident(pid)
      _, resident, shared = File.read("/proc/#{pid}/statm").split.map { |pages| pages.to_i * Etc.sysconf(Etc::SC_PAGESIZE) }
      [resident, resident - shared]
    rescue SystemCallError
      [0, 0]
    end

    # Exact figures. Costly: the kernel walks all pages of the process, which takes milliseconds for 100 MB, while #resident takes
    # microseconds. A page that several processes share counts for each in part.
    #
    # @return [ProcessMemory, nil] nil for a process that has ended or is not readable: see WorkerHandle#memory
    def of(pid)
      found = File.read("/proc/#{pid}/smaps_rollup").scan(/^(\w+): +(\d+) kB/).to_h.transform_values { |kb| kb.to_i * 1024 }
      swap = found.fetch("SwapPss", 0)
      new(found.fetch("Pss") + swap, found.fetch("Private_Clean") + found.fetch("Private_Dirty") + swap)
    rescue SystemCallError, KeyError
      nil
    end

    # @param handles [Enumerable<WorkerHandle>]
    # @return [Integer] PSS of this process and of the workers, in bytes
    def pss(handles) = [of("self"), *handles.map(&:memory)].compact.sum(&:pss)

    # @return [String] for the log
    def format(bytes)
      "#{(bytes / 1024.0**2).round(bytes >= 10 * 1024**2 ? 0 : 1)} MB"
    end
  end
end
