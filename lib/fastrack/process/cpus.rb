# frozen_string_literal: true

require "etc"

module Fastrack
  # The CPUs that this process may use: those of its affinity mask (taskset(1), a cpuset), as far as the quota of its cgroup
  # and of those above goes, version 1 or 2 (cgroups(7)).
  class CPUs
    # @param affinity [Integer] sched_getaffinity(2), by Ruby
    # @param membership [String] see cgroups(7), /proc/[pid]/cgroup
    # @param root [String] where cgroups are mounted
    def initialize(affinity: Etc.nprocessors, membership: "/proc/self/cgroup", root: "/sys/fs/cgroup")
      @affinity = affinity
      @membership = membership
      @root = root
    end

    # @return [Integer] at least 1; a part of a CPU is no CPU
    def count
      [@affinity, quota&.floor].compact.min.clamp(1..)
    end

    # @return [Float, nil] the smallest on the way up; nil without
    def quota
      directories.filter_map { |directory| unified(directory) || separate(directory) }.min
    end

    # The figures behind #count.
    def to_s
      limit = quota
      "affinity: #{@affinity} CPUs, cgroup quota: #{limit ? format("%.4g", limit) : "none"}"
    end

    private

    # In a container the path may be the host's: then only the top is there.
    def directories
      File.readlines(@membership, chomp: true).flat_map do |line|
        _, controllers, path = line.split(":", 3)
        next [] unless path && (controllers.empty? || controllers.split(",").include?("cpu"))

        mounts = controllers.empty? ? [@root, "#{@root}/unified"] : ["#{@root}/#{controllers}", "#{@root}/cpu"]
        mounts.product(upwards(path)).map { |mount, inside| File.join(mount, inside) }
      end
    rescue SystemCallError
      []
    end

    def upwards(path)
      parts = path.split("/").reject(&:empty?)
      (0..parts.size).map { |count| parts.first(count).join("/") }
    end

    # Version 2: "max 100000", "150000 100000".
    def unified(directory)
      allowed, period = read("#{directory}/cpu.max")&.split
      share(allowed, period) unless allowed == "max"
    end

    # Version 1: -1 means no limit.
    def separate(directory)
      share(read("#{directory}/cpu.cfs_quota_us"), read("#{directory}/cpu.cfs_period_us"))
    end

    def share(allowed, period)
      allowed.to_f / period.to_f if allowed.to_i.positive? && period.to_i.positive?
    end

    def read(path)
      File.read(path)
    rescue SystemCallError
      nil
    end
  end
end
