# frozen_string_literal: true

# A control group of its own that limits memory (cgroups(7)), where this user may make one.
class MemoryCgroup
  # Where one can be made, and the names of its files: version 1, then version 2.
  PLACES = {
    "/sys/fs/cgroup/memory" => %w[memory.limit_in_bytes memory.max_usage_in_bytes memory.usage_in_bytes memory.oom_control],
    "/sys/fs/cgroup" => %w[memory.max memory.peak memory.current memory.events]
  }.freeze

  # @return [MemoryCgroup, nil] nil if there is no way to make one
  def self.make(bytes, name = "fastrack-spec-#{Process.pid}")
    PLACES.each do |place, files|
      path = File.join(place, name)
      Dir.mkdir(path)
      group = new(path, files)
      return group if group.limit(bytes)

      group.remove
    rescue SystemCallError
      next
    end
    nil
  end

  def initialize(path, files)
    @path = path
    @limit, @peak, @used, @events = files.map { |name| File.join(path, name) }
  end

  # @return [Boolean] whether it is in force
  def limit(bytes)
    return false unless File.exist?(@limit)

    File.write(@limit, bytes.to_s)
    File.read(@limit).to_i == bytes
  end

  # @return [Array<String>] what to put before a command, so that it and its children are in the group
  def wrapper = ["sh", "-c", "echo $$ >#{@path}/cgroup.procs && exec \"$@\"", "sh"]

  # @return [Integer, nil] the most that was in use at a time, in bytes; caches of files count
  def peak = (File.read(@peak).to_i if File.exist?(@peak))

  # @return [Integer] bytes that are in use; caches of files count
  def used = File.read(@used).to_i

  # @return [Integer] how many processes the kernel has killed for it
  def kills = File.read(@events)[/^oom_kill (\d+)/, 1].to_i
  def processes = File.readlines(File.join(@path, "cgroup.procs")).map(&:to_i)
  def remove = Dir.rmdir(@path)
end
