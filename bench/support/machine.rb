# frozen_string_literal: true

require "etc"
require "open3"

module Bench
  # The machine of the measurements.
  module Machine
    # nginx is where only root looks.
    PLACES = [*ENV.fetch("PATH", "").split(":"), "/usr/local/sbin", "/usr/sbin"].freeze
    private_constant :PLACES

    # @return [String, nil] path of nginx, which is Debian's nginx-light
    def self.nginx = PLACES.map { |dir| File.join(dir, "nginx") }.find { |path| File.executable?(path) }

    # @return [Hash{String => Object}] CPU, cores, kernel, and the version of nginx
    def self.facts
      {
        "cpu" => File.read("/proc/cpuinfo")[/^model name\s*: (.*)$/, 1], "cores" => Etc.nprocessors,
        "memory_gb" => (File.read("/proc/meminfo")[/^MemTotal:\s+(\d+) kB/, 1].to_i * 1024 / 1e9).round(1),
        "kernel" => Etc.uname[:release], "nginx" => nginx && Open3.capture2e(nginx, "-v").first[%r{nginx/\S+}]
      }
    end
  end
end
