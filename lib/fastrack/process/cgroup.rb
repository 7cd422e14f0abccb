# frozen_string_literal: true

module Fastrack
  # The control groups that this process is in, for one controller, version 1 or 2 (cgroups(7)).
  class Cgroup
    # @return [String, nil] nil if the file is not there, or not to be read
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

    # In a container the path may be the host's: then only the top is there.
    #
    # @return [Array<String>] where its files may be, and those of the groups above it
    def directories
      File.readlines(@membership, chomp: true).flat_map do |line|
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
end
