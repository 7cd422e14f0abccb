# frozen_string_literal: true

require_relative "../process_tree"

module Soak
  # All processes of one moment, as /proc shows them.
  class Processes
    def self.now = new

    # @return [String] the command line, or the title that a process has given itself
    def self.title(pid)
      File.binread("/proc/#{pid}/cmdline").tr("\0", " ").strip
    rescue SystemCallError
      ""
    end

    # @return [Integer] bytes that are in memory, shared ones included
    def self.memory(pid)
      File.read("/proc/#{pid}/statm").split[1].to_i * 4096
    rescue SystemCallError
      0
    end

    # @return [Hash{String => Integer}] how many descriptors of which kind are open
    def self.descriptors(pid)
      Dir.children("/proc/#{pid}/fd").map do |number|
        target = File.readlink("/proc/#{pid}/fd/#{number}")
        target.start_with?("/") ? target : target[/\A[\w-]+(?::\[\w+\])?/].sub(/\d+/, "")
      rescue SystemCallError
        "gone"
      end.tally
    rescue SystemCallError
      {}
    end

    def initialize
      pids = Dir.children("/proc").grep(/\A\d+\z/).map(&:to_i)
      @entries = pids.to_h { |pid| [pid, Bench::ProcessTree.stat(pid)&.first(2)] }.compact
      @children = @entries.keys.group_by { |pid| @entries[pid][1].to_i }
    end

    def alive?(pid) = @entries.key?(pid) && !zombie?(pid)

    def zombie?(pid) = @entries.dig(pid, 0) == "Z"

    # @return [Array<Integer>] zombies left out
    def children(pid) = @children.fetch(pid, []).reject { |child| zombie?(child) }

    def zombies(pid) = @children.fetch(pid, []).select { |child| zombie?(child) }

    # @return [Array<Integer>] zombies included
    def descendants(pid) = @children.fetch(pid, []).flat_map { |child| [child, *descendants(child)] }
  end
end
