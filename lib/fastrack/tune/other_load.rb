# frozen_string_literal: true

require_relative "../process/proc_stat"

module Fastrack
  module Tune
    # CPU time of other processes while something is measured (proc(5): /proc/stat, /proc/PID/stat). Interrupts do not count: those of
    # the measured requests are among them.
    class OtherLoad
      # Fields of /proc/stat: user, nice, system and steal.
      TAKEN = [0, 1, 2, 7].freeze

      # The share of the machine's CPUs that the report mentions.
      REPORTED_SHARE = 0.1

      # @return [Integer] the machine's CPUs
      def self.machine = [machine_stat.grep(/\Acpu\d/).size, 1].max

      # @return [Array<String>] lines of proc(5)
      def self.machine_stat = File.readlines("/proc/stat")

      # Begins to measure.
      #
      # @param pid [Integer] this process and its descendants are not the others
      def initialize(pid = Process.pid)
        @pid = pid
        @began = now
        @before = foreign
      end

      # @return [Float] CPUs that the others have taken since then
      def cpus
        seconds = [now - @began, 0.01].max
        ((foreign - @before) / ProcStat::TICKS / seconds).clamp(0.0, OtherLoad.machine.to_f)
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # @return [Integer] ticks of all processes outside of the family
      def foreign = OtherLoad.machine_stat.first.split.drop(1).values_at(*TAKEN).sum(&:to_i) - family

      # @return [Integer] ticks of the process and its descendants, and of their children that have ended
      def family
        rows = ProcStat.all
        children = rows.keys.group_by { |pid| rows[pid][1].to_i }
        found = [@pid]
        found.each { |pid| found.concat(children.fetch(pid, [])) }
        rows.values_at(*found).compact.sum { |row| row.values_at(11, 12, 13, 14).sum(&:to_i) }
      end
    end
  end
end
