# frozen_string_literal: true

require "etc"
require_relative "../process/cpus"

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

  # How much memory master and workers may take together, and how much is taken.
  class MemoryLimit
    # Of the limit at which the kernel kills: it takes some for itself, and requests come and go.
    SHARE = 0.95

    # @param configuration [Configuration]
    # @return [MemoryLimit, nil] nil if there is none
    def self.find(configuration)
      given = configuration.max_memory
      return (new(given, "MaxMemory") if given.positive?) if given

      # A developer's one worker may be in a debugger.
      CgroupLimit.find unless configuration.development? && !configuration.auto_workers?
    end

    # @return [Integer] bytes
    attr_reader :bytes

    # @param source [String] what sets it, for the log
    def initialize(bytes, source)
      @bytes = bytes
      @source = source
    end

    def to_s
      "#{ProcessMemory.format(@bytes)} (#{@source})"
    end

    # @param handles [Array<WorkerHandle>] the workers, beside which this process is the master
    # @param exact [Boolean] else it may be more, as long as what is returned is within the limit: PSS is dear to ask for
    # @return [Integer] bytes
    def used(handles, exact: false)
      most = [Process.pid, *handles.map(&:pid)].sum { |pid| ProcessMemory.resident(pid).first } unless exact
      most && most <= @bytes ? most : ProcessMemory.pss(handles)
    end

    # How many processes the kernel has killed for it so far.
    def kills = 0

    # That of the smallest cgroup around this process. What the kernel could take back, files in its cache, does not count as used.
    class CgroupLimit < MemoryLimit
      # Names of the files, and the prefix within memory.stat: version 2, where the kernel slows down beyond `high`, and 1.
      FILES = [
        %w[memory.max memory.current memory.events], %w[memory.high memory.current memory.events],
        %w[memory.limit_in_bytes memory.usage_in_bytes memory.oom_control total_]
      ].freeze

      # @return [CgroupLimit, nil] nil without a limit
      def self.find(cgroup = Cgroup.new("memory"), total = Etc.sysconf(Etc::SC_PHYS_PAGES) * Etc.sysconf(Etc::SC_PAGESIZE))
        found = cgroup.directories.product(FILES).filter_map do |directory, (limit, *files)|
          bytes = Integer(Cgroup.read("#{directory}/#{limit}").to_s.chomp, exception: false)
          new(bytes, directory, *files) if bytes&.between?(1, total)
        end
        found.min_by(&:bytes)
      end

      def initialize(bytes, directory, usage, events, prefix = nil)
        super((bytes * SHARE).to_i, "#{(SHARE * 100).round} % of the cgroup's #{ProcessMemory.format(bytes)}")
        @usage = "#{directory}/#{usage}"
        @stat = "#{directory}/memory.stat"
        @events = "#{directory}/#{events}"
        @prefix = prefix
      end

      def used(_handles, **)
        cache = Cgroup.read(@stat).to_s.scan(/^#{@prefix}(?:active_file|inactive_file|slab_reclaimable) (\d+)$/).flatten.sum(&:to_i)
        [Cgroup.read(@usage).to_i - cache, 0].max
      end

      def kills
        Cgroup.read(@events).to_s[/^oom_kill (\d+)/, 1].to_i
      end
    end

    # What the machine has: where nothing else sets a limit.
    class MachineLimit < MemoryLimit
      def initialize(meminfo = "/proc/meminfo")
        @meminfo = meminfo
        total = read("MemTotal")
        super((total * SHARE).to_i, "#{(SHARE * 100).round} % of the machine's #{ProcessMemory.format(total)}")
      end

      def used(_handles, **)
        read("MemTotal") - read("MemAvailable")
      end

      private

      def read(name)
        File.read(@meminfo)[/^#{name}: +(\d+) kB/, 1].to_i * 1024
      end
    end
  end
end
