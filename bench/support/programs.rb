# frozen_string_literal: true

module Bench
  # The programs besides the servers that a run needs.
  module Programs
    # Name and Debian package.
    PACKAGES = { "nginx" => "nginx-light" }.freeze
    # nginx is where only root looks.
    PLACES = [*ENV.fetch("PATH", "").split(":"), "/usr/local/sbin", "/usr/sbin"].freeze
    private_constant :PACKAGES, :PLACES

    # @return [String, nil] the path of a program
    def self.find(name)
      PLACES.map { |dir| File.join(dir, name) }.find { |path| File.executable?(path) && !File.directory?(path) }
    end

    # @return [String]
    def self.nginx = find("nginx") || "nginx"

    # @param workloads [Array<Workload>]
    # @return [Array<String>] Debian packages of the programs that are not there
    def self.missing(workloads)
      needed = PACKAGES.select { |name, _| workloads.any? { |workload| workload.nginx? || workload.servers.include?(name) } }
      needed.reject { |name, _| find(name) }.values
    end
  end
end
