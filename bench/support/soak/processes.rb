# frozen_string_literal: true

require_relative "../process_tree"

module Soak
  # The facts of processes, as /proc shows them.
  module Processes
    module_function

    def alive?(pid) = Bench::ProcessTree.alive?(pid)

    # @return [Array<Integer>] zombies left out
    def children(pid) = Bench::ProcessTree.children.fetch(pid, []).select { |child| alive?(child) }

    # @return [Array<Integer>] children that nobody has collected
    def zombies(pid) = Bench::ProcessTree.children.fetch(pid, []).select { |child| Bench::ProcessTree.stat(child)&.first == "Z" }

    # @return [Array<Integer>] zombies included
    def descendants(pid) = Bench::ProcessTree.new([pid]).pids.drop(1)

    # @return [String] the command line, or the title that a process has given itself
    def title(pid)
      File.binread("/proc/#{pid}/cmdline").tr("\0", " ").strip
    rescue SystemCallError
      ""
    end

    # @return [Integer] bytes that are in memory, shared ones included
    def memory(pid)
      File.read("/proc/#{pid}/statm").split[1].to_i * 4096
    rescue SystemCallError
      0
    end

    # @return [Hash{String => Integer}] how many descriptors of which kind are open
    def descriptors(pid)
      Dir.children("/proc/#{pid}/fd").map do |number|
        target = File.readlink("/proc/#{pid}/fd/#{number}")
        target.start_with?("/") ? target : target[/\A[\w-]+(?::\[\w+\])?/].sub(/\d+/, "")
      rescue SystemCallError
        "gone"
      end.tally
    rescue SystemCallError
      {}
    end
  end
end
