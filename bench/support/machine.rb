# frozen_string_literal: true

require "etc"
require "open3"

module Bench
  # The machine of the measurements.
  module Machine
    # @return [Hash{String => Object}] CPU, cores, kernel, and the version of nginx
    def self.facts
      {
        "cpu" => File.read("/proc/cpuinfo")[/^model name\s*: (.*)$/, 1], "cores" => Etc.nprocessors,
        "memory_gb" => (File.read("/proc/meminfo")[/^MemTotal:\s+(\d+) kB/, 1].to_i * 1024 / 1e9).round(1),
        "kernel" => Etc.uname[:release],
        "nginx" => said(Programs.nginx, "-v")[%r{nginx/\S+}]
      }
    end

    def self.said(*words)
      Open3.capture2e(*words).first
    rescue Errno::ENOENT
      ""
    end
    private_class_method :said
  end
end
