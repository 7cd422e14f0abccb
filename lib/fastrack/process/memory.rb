# frozen_string_literal: true

require "etc"

module Fastrack
  # What a process takes of the memory, in bytes (proc(5)): `pss`, its own pages and its share of the others, swap included; `private`,
  # its own pages, which its end sets free, and which one more like it takes.
  ProcessMemory = Struct.new(:pss, :private)

  # What the log says where the system does not tell.
  ProcessMemory::UNKNOWN = "this system does not tell what a process has for itself (/proc/PID/smaps_rollup)"

  class << ProcessMemory
    # The bit of CAP_SYS_PTRACE (linux/capability.h).
    SYS_PTRACE = 19
    private_constant :SYS_PTRACE

    # Whether this system tells.
    def known? = File.readable?("/proc/self/smaps_rollup")

    # Whether that process may not look at this one (ptrace(2), access mode checking): a master of root's without CAP_SYS_PTRACE, as in
    # Docker, at a worker of another user's. What has changed its user, or may do more than its user, is root's in /proc.
    def hidden_from?(pid)
      return false if ["self", pid].all? { |one| File.stat("/proc/#{one}").owned? }

      File.read("/proc/#{pid}/status")[/^CapEff:\s+(\h+)/, 1].hex[SYS_PTRACE].zero?
    rescue SystemCallError
      true
    end

    # Cheap: the kernel keeps these figures.
    #
    # @param pid [Integer, String]
    # @return [Array(Integer, Integer)] what is in memory, and what of it is anonymous; zeros for one that is gone
    def resident(pid)
      _, resident, shared = File.read("/proc/#{pid}/statm").split.map { |pages| pages.to_i * Etc.sysconf(Etc::SC_PAGESIZE) }
      [resident, resident - shared]
    rescue SystemCallError
      [0, 0]
    end

    # Dear: the kernel walks all of its pages, which takes milliseconds for 100 MB, where #resident takes microseconds. A page that
    # several processes share counts in parts for each.
    #
    # @return [ProcessMemory, nil] nil for one that is gone, or that this process may not look at: see WorkerHandle#memory
    def of(pid)
      found = File.read("/proc/#{pid}/smaps_rollup").scan(/^(\w+): +(\d+) kB/).to_h.transform_values { |kb| kb.to_i * 1024 }
      swap = found.fetch("SwapPss", 0)
      new(found.fetch("Pss") + swap, found.fetch("Private_Clean") + found.fetch("Private_Dirty") + swap)
    rescue SystemCallError, KeyError
      nil
    end

    # @param handles [Enumerable<WorkerHandle>]
    # @return [Integer] bytes of PSS that this process and those take
    def pss(handles) = [of("self"), *handles.map(&:memory)].compact.sum(&:pss)

    # @return [String] for the log
    def format(bytes)
      "#{(bytes / 1024.0**2).round(bytes >= 10 * 1024**2 ? 0 : 1)} MB"
    end
  end
end
