# frozen_string_literal: true

require "etc"

module Fastrack
  # The control groups of this process for a controller, version 1 or 2 (cgroups(7)).
  class Cgroup
    # @return [String, nil] nil if the file is missing or not readable
    def self.read(path)
      File.read(path)
    rescue SystemCallError
      nil
    end

    # @param controller [String]
    # @param membership [String] see cgroups(7), /proc/[pid]/cgroup
    # @param root [String] where cgroups are mounted
    def initialize(controller, membership: "/proc/self/cgroup", root: "/sys/fs/cgroup")
      @controller = controller
      @membership = membership
      @root = root
    end

    # In a container the path may be the host's. Then only the top of the hierarchy exists.
    #
    # @return [Array<String>] folders that may have the files of the group, and of the groups above
    def directories
      File.binread(@membership).lines(chomp: true).flat_map do |line|
        _, controllers, path = line.split(":", 3)
        next [] unless path && (controllers.empty? || controllers.split(",").include?(@controller))

        mounts = controllers.empty? ? [@root, "#{@root}/unified"] : ["#{@root}/#{controllers}", "#{@root}/#{@controller}"]
        mounts.uniq.product(upwards(path)).map { |mount, inside| File.join(mount, inside) }
      end
    rescue SystemCallError
      []
    end

    private

    def upwards(path)
      parts = path.split("/").reject(&:empty?)
      (0..parts.size).map { |count| parts.first(count).join("/") }
    end
  end

  # The CPUs that this process may use: CPUs of the affinity mask (taskset(1), a cpuset), limited by the quotas of its cgroup and of the
  # groups above, version 1 or 2 (cgroups(7)).
  class CPUs
    # @param affinity [Integer] sched_getaffinity(2), by Ruby
    # @param membership [String] see cgroups(7), /proc/[pid]/cgroup
    # @param root [String] where cgroups are mounted
    def initialize(affinity: Etc.nprocessors, membership: "/proc/self/cgroup", root: "/sys/fs/cgroup")
      @affinity = affinity
      @cgroup = Cgroup.new("cpu", membership: membership, root: root)
    end

    # @return [Integer] at least 1; parts of a CPU do not count
    def count = [@affinity, quota&.floor].compact.min.clamp(1..)

    # @return [Float, nil] the lowest quota of the groups; nil without one
    def quota = @cgroup.directories.filter_map { |directory| unified(directory) || separate(directory) }.min

    # @return [Float] with parts of CPUs
    def capacity = [@affinity, quota].compact.min.to_f

    # The figures behind #count.
    def to_s
      limit = quota
      "affinity: #{@affinity} CPUs, cgroup quota: #{limit ? format("%.4g", limit) : "none"}"
    end

    private

    # Version 2: "max 100000", "150000 100000".
    def unified(directory)
      allowed, period = Cgroup.read("#{directory}/cpu.max")&.split
      share(allowed, period) unless allowed == "max"
    end

    # Version 1: -1 means no limit.
    def separate(directory)
      share(Cgroup.read("#{directory}/cpu.cfs_quota_us"), Cgroup.read("#{directory}/cpu.cfs_period_us"))
    end

    def share(allowed, period)
      allowed.to_f / period.to_f if allowed.to_i.positive? && period.to_i.positive?
    end
  end
end
