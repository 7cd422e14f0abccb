# frozen_string_literal: true

require_relative "../error"
require_relative "../memory/limit"
require_relative "../process/proc_stat"

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
      workers = ProcStat.children(pid).keys.filter_map { |child| worker(child) }.sort_by { |one| one["nr"] }
      { "pid" => pid, "phase" => "running", "now" => Process.clock_gettime(Process::CLOCK_MONOTONIC), "workers_wanted" => nil,
        "workers" => workers, "listeners" => [], "master" => usage(pid), "uptime" => ProcStat.age(pid) }
    rescue SystemCallError
      raise Error, "process #{pid} cannot be looked at: this takes Linux, or the monitor"
    end

    def worker(pid)
      number = File.read("/proc/#{pid}/cmdline")[TITLE, 1]
      number && { "nr" => number.to_i, "pid" => pid, "state" => "?", "uptime" => ProcStat.age(pid) }.merge(usage(pid))
    rescue SystemCallError
      nil
    end

    def usage(pid)
      memory = ProcessMemory.of(pid)
      { "cpu_seconds" => ProcStat.cpu_seconds(pid), "rss" => ProcessMemory.resident(pid).first, "pss" => memory&.pss, "private" => memory&.private }
    end
  end
end
