# frozen_string_literal: true

# A control group of its own that limits memory (cgroups(7)), where this user may make one.
class MemoryCgroup
  # Where one can be made, and its files of the limit and of what is in use: version 1, then version 2.
  PLACES = { "/sys/fs/cgroup/memory" => %w[memory.limit_in_bytes memory.usage_in_bytes], "/sys/fs/cgroup" => %w[memory.max memory.current] }.freeze

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
    @limit, @used = files.map { |name| File.join(path, name) }
  end

  def limit(bytes)
    return false unless File.exist?(@limit)

    File.write(@limit, bytes.to_s)
    File.read(@limit).to_i == bytes
  end

  def wrapper
    ["sh", "-c", "echo $$ >#{@path}/cgroup.procs && exec \"$@\"", "sh"]
  end

  def used
    File.read(@used).to_i
  end

  def processes
    File.readlines(File.join(@path, "cgroup.procs")).map(&:to_i)
  end

  def remove
    Dir.rmdir(@path)
  end
end
