# frozen_string_literal: true

require "etc"
require_relative "../error"

module Fastrack
  # What proc(5) says of a server of which only the pid is known, in the shape of the monitor's status. What it does not say is
  # not there.
  module ProcStatus
    TITLE = /\Afastrack worker\[(\d+)\]/.freeze

    module_function

    # @param pid [Integer] the master's
    # @return [Hash]
    # @raise [Error]
    def of(pid)
      workers = Dir.glob("/proc/[0-9]*").filter_map { |dir| worker(File.basename(dir).to_i, pid) }.sort_by { |one| one["nr"] }
      { "pid" => pid, "phase" => "running", "now" => Process.clock_gettime(Process::CLOCK_MONOTONIC), "master" => usage(pid),
        "uptime" => uptime(pid), "workers_wanted" => nil, "workers" => workers, "listeners" => [] }
    rescue SystemCallError
      raise Error, "process #{pid} cannot be looked at: this takes Linux, or the monitor"
    end

    def worker(pid, master)
      return unless stat(pid)[1].to_i == master

      number = File.read("/proc/#{pid}/cmdline")[TITLE, 1]
      number && { "nr" => number.to_i, "pid" => pid, "state" => "?", "uptime" => uptime(pid) }.merge(usage(pid))
    rescue SystemCallError
      nil
    end

    def usage(pid)
      fields = stat(pid)
      cpu = (fields[11].to_i + fields[12].to_i).fdiv(Etc.sysconf(Etc::SC_CLK_TCK))
      { "cpu_seconds" => cpu, "rss" => fields[21].to_i * Etc.sysconf(Etc::SC_PAGESIZE), "pss" => proportional(pid) }
    end

    def proportional(pid)
      kilobytes = File.read("/proc/#{pid}/smaps_rollup")[/^Pss:\s+(\d+) kB/, 1]
      kilobytes && kilobytes.to_i * 1024
    rescue SystemCallError
      nil
    end

    def uptime(pid)
      started = stat(pid)[19].to_i.fdiv(Etc.sysconf(Etc::SC_CLK_TCK))
      Process.clock_gettime(Process::CLOCK_BOOTTIME) - started
    end

    # The fields after the name, which is in parentheses.
    def stat(pid) = File.read("/proc/#{pid}/stat").rpartition(")").last.split
  end
end
