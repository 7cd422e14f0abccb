# frozen_string_literal: true

require "etc"
require_relative "front"

# What /proc says about processes (see proc(5)).
module ProcessTable
  # Titles of a master's children that are no workers.
  OTHERS = %r{\A\z|\Afastrack (?:generation|mold|master#{"|proxy" if Front::PROXIED})|exe/fastrack}.freeze

  Entry = Struct.new(:pid, :name, :state, :parent, :group, :cpu_ticks)

  module_function

  def entry(pid)
    text = File.binread("/proc/#{pid}/stat")
    name = text[/\((.*)\)/m, 1]
    fields = text[(text.rindex(")") + 2)..].split
    Entry.new(pid, name, fields[0], fields[1].to_i, fields[2].to_i, fields[11].to_i + fields[12].to_i)
  rescue Errno::ENOENT, Errno::ESRCH
    nil
  end

  def all = Dir.children("/proc").grep(/\A\d+\z/).filter_map { |pid| entry(pid.to_i) }

  # Pids of the children of a process, of zombies among those of some, and of everything in a process group, whoever its parent is
  # by now. Zombies are left out of the others.
  def children(pid) = pids { |state, parent| parent == pid && state != "Z" }
  def zombies(*parents) = pids { |state, parent| parents.include?(parent) && state == "Z" }
  def group(pgid) = pids { |state, _, group| group == pgid && state != "Z" }

  # Pids of a master's children by their titles: workers, which may call themselves what they like, and those that have loaded the app. On macOS
  # workers are children of those.
  def workers(master) = family(master).reject { |pid| title(pid).match?(OTHERS) }

  def family(master)
    own = children(master)
    Portable::ON ? own + own.select { |pid| title(pid).match?(/\Afastrack (?:generation|mold)/) }.flat_map { |pid| children(pid) } : own
  end

  def molds(master) = children(master).select { |pid| title(pid).start_with?("fastrack generation") }

  # Only as much as is asked for of each: there may be hundreds of processes, and specs look at them often.
  def pids
    Dir.children("/proc").grep(/\A\d/).filter_map do |pid|
      text = File.binread("/proc/#{pid}/stat")
      state, parent, group = text[text.rindex(")") + 2, 40].split(" ", 4)
      pid.to_i if yield(state, parent.to_i, group.to_i)
    rescue Errno::ENOENT, Errno::ESRCH
      nil
    end.sort
  end

  # Whether a group has no process, not even a zombie: see kill(2), which is asked more quickly.
  def no_group?(pgid)
    Process.kill(0, -pgid)
    false
  rescue Errno::ESRCH
    true
  end

  # Whether the process runs; a zombie does not.
  def alive?(pid)
    found = entry(pid)
    !found.nil? && found.state != "Z" && found.state != "X"
  end

  # CPU seconds that processes use within a time. The time is what is measured, and so it has to pass: one that spins uses
  # all of it, or its share of a busy machine, and one that sleeps next to nothing.
  def cpu_seconds_within(seconds, pids)
    used = -> { Array(pids).sum { |pid| entry(pid).cpu_ticks }.fdiv(Etc.sysconf(Etc::SC_CLK_TCK)) }
    before = used.call
    sleep(seconds)
    used.call - before
  end

  # The command line as ps shows it: a process title, where one was set.
  # Empty for one that has just ended.
  def title(pid)
    File.binread("/proc/#{pid}/cmdline").tr("\0", " ").strip
  rescue Errno::ENOENT, Errno::ESRCH
    ""
  end

  def descriptors(pid)
    Dir.children("/proc/#{pid}/fd").to_h do |number|
      [number.to_i, File.readlink("/proc/#{pid}/fd/#{number}")]
    rescue Errno::ENOENT
      [number.to_i, nil]
    end
  end
end
