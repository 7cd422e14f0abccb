# frozen_string_literal: true

require_relative "../error"
require_relative "../process/master_title"

module Fastrack
  # Finds the server that runs in the current directory, by proc(5): by its master's process title and directory. It takes no file that
  # could name another process, and works in a container, which has a /proc of its own.
  module FolderServer
    # What proc(5) adds to the name of a directory that has been removed. HUP and USR2 go to the one that has the name by now.
    REMOVED = " (deleted)"

    Master = Struct.new(:pid, :parent)

    module_function

    # @return [Integer, nil] the master's pid; nil where none runs here, or where there is no /proc
    # @raise [Error] when there are several
    def pid
      found = masters
      # During USR2 the new master is a child of the old one, which cancels it if it is told to stop.
      found = found.reject { |one| found.any? { |other| other.pid == one.parent } }
      raise Error, "several servers run in #{Dir.pwd} (pids #{found.map(&:pid).sort.join(", ")}): name one by -P, -c or --control" if found.size > 1

      found.first&.pid
    end

    def masters = Dir.glob("/proc/[0-9]*").filter_map { |dir| master(dir) }

    # Another user's process may call itself what it likes: this user's orders are not for it. Root's are also for the server of the user
    # whose folder this is.
    #
    # @param dir [String] of a process in /proc
    # @return [Master, nil]
    def master(dir)
      pid = File.basename(dir).to_i
      return unless MasterTitle.of?(pid)

      status = File.read("#{dir}/status")
      users = status[/^Uid:(.*)/, 1].to_s.split.map(&:to_i).uniq
      Master.new(pid, status[/^PPid:\s*(\d+)/, 1].to_i) if users.one? && trusted.include?(users.first) && here?("#{dir}/cwd")
    rescue SystemCallError
      # It has ended, or is not ours to look at.
      nil
    end

    def trusted = [Process.euid, *(File.stat(".").uid if Process.euid.zero?)]

    # @param link [String] to a process's directory
    def here?(link)
      # A folder may really have that name.
      File.identical?(link, ".") || (File.readlink(link) == "#{Dir.pwd}#{REMOVED}" && !File.identical?(link, "#{Dir.pwd}#{REMOVED}"))
    end
    private_class_method :masters, :master, :trusted, :here?
  end
end
