# frozen_string_literal: true

require "fileutils"
require "open3"
require "rbconfig"
require "tmpdir"
require_relative "server"

# A place where podman makes containers and leaves no trace: it has neither images nor a registry. The container's root is empty but for
# this machine's /usr, and what has to be served is mounted at the paths that it has outside.
class Podman
  # Megabytes that a container may take.
  MEMORY = 512

  def self.open
    Dir.mktmpdir("fastrack-podman") do |dir|
      podman = new(File.realpath(dir))
      yield podman
    ensure
      podman&.finish
    end
  end

  attr_reader :name

  def initialize(dir)
    @dir = dir
    @name = "fastrack-#{Process.pid}-#{File.basename(dir)[/\w+\z/]}"
    root = File.join(dir, "root")
    FileUtils.mkdir_p(%w[usr etc proc sys dev tmp run].map { |folder| File.join(root, folder) })
    %w[bin sbin lib lib64].each { |folder| File.symlink("usr/#{folder}", File.join(root, folder)) }
  end

  # @return [String, nil] why there can be no container
  def problem
    return @problem if defined?(@problem)

    output, status = Open3.capture2e(*command("run", "--rm", *options, "--rootfs", File.join(@dir, "root"), RbConfig.ruby, "-rrack", "-e", ""))
    @problem = status.success? ? nil : "podman runs no container here: #{output.strip}"
  rescue Errno::ENOENT
    @problem = "there is no podman"
  end

  # What to put before a server's command, so that it is process 1 of a container.
  def wrapper
    mounts = ["--volume", "#{Server::ROOT}:#{Server::ROOT}:ro", "--volume", "$PWD:$PWD", "--workdir", "$PWD"].map { |word| %("#{word}") }
    words = command("run", "--rm", "--name", @name, *options)
    ["sh", "-c", "exec #{words.join(" ")} #{mounts.join(" ")} --rootfs #{@dir}/root \"$@\"", "sh"]
  end

  # @return [String] what the command printed
  # @raise [RuntimeError]
  def run(*words)
    output, status = Open3.capture2e(*command(*words))
    raise "podman #{words.join(" ")}: #{output}" unless status.success?

    output
  end

  # The pid that process 1 has outside.
  def master
    Integer(run("inspect", "--format", "{{.State.Pid}}", @name))
  end

  def finish
    system(*command("rm", "--force", "--time", "0", @name), %i[out err] => File::NULL) if defined?(@problem) && @problem.nil?
  end

  private

  # crun refuses a memory limit where both versions of cgroups are mounted, and runc does not.
  def runtime
    ENV.fetch("PATH").split(":").any? { |dir| File.executable?("#{dir}/runc") } ? %w[--runtime runc] : []
  end

  def command(*words)
    ["podman", *runtime, "--root", "#{@dir}/storage", "--runroot", "#{@dir}/state", "--tmpdir", "#{@dir}/tmp", "--storage-driver", "vfs",
     "--cgroup-manager", "cgroupfs", "--events-backend", "none", *words]
  end

  # The host's network, because another one takes a bridge; and no rights that a server does not need.
  def options
    ["--network", "host", *limits, "--memory", "#{MEMORY}m", "--cap-drop", "ALL", "--log-driver", "none", "--volume", "/usr:/usr:ro",
     "--env", "LANG=C.UTF-8", "--env", "HOME=/tmp"]
  end

  # Podman's own may be above what this machine allows (CAP_SYS_RESOURCE).
  def limits
    { nofile: 10_000, nproc: 4_000 }.flat_map do |name, wanted|
      ["--ulimit", "#{name}=#{[wanted, *Process.getrlimit(name.upcase)].min}"]
    end
  end
end
