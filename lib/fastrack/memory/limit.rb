# frozen_string_literal: true

require "etc"
require_relative "../process/cpus"
require_relative "../process/memory"

module Fastrack
  # A limit for the memory of master, proxies and workers together, and their use.
  class MemoryLimit
    # Share of the limit at which the kernel kills. The rest is for the kernel's own use and for short peaks.
    SHARE = 0.95

    # @param configuration [Configuration]
    # @return [MemoryLimit, nil] nil without a limit
    def self.find(configuration)
      given = configuration.max_memory
      return (new(given, "MaxMemory") if given.positive?) if given

      # A developer's one worker may be in a debugger.
      CgroupLimit.find unless configuration.development? && !configuration.auto_workers?
    end

    # @return [Integer] bytes
    attr_reader :bytes

    # @param source [String] origin of the limit, for the log
    def initialize(bytes, source)
      @bytes = bytes
      @source = source
    end

    def to_s
      "#{ProcessMemory.format(@bytes)} (#{@source})"
    end

    # @param handles [Array<WorkerHandle>] the workers; this process is the master
    # @param proxies [Array<Integer>] pids of the proxies
    # @param exact [Boolean] false: a result within the limit may be an upper bound, because PSS is costly
    # @return [Integer] bytes
    def used(handles, proxies: [], exact: false)
      most = [Process.pid, *proxies, *handles.map(&:pid)].sum { |pid| ProcessMemory.resident(pid).first } unless exact
      return most if most && most <= @bytes

      ProcessMemory.pss(handles) + proxies.sum { |pid| ProcessMemory.of(pid)&.pss || ProcessMemory.resident(pid).first }
    end

    # Processes that the kernel has killed because of the limit so far.
    def kills = 0

    # The limit of the smallest cgroup around this process. Memory that the kernel could reclaim, such as cached files, does not count as
    # used.
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

    # The machine's memory, where nothing else sets a limit.
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
