# frozen_string_literal: true

require "etc"

module Fastrack
  module Tune
    # What other processes take of the machine's CPUs while something is measured (proc(5): /proc/stat, /proc/PID/stat). Interrupts are
    # nobody's: those of the measured requests are among them.
    class OtherLoad
      TICKS = Etc.sysconf(Etc::SC_CLK_TCK).to_f

      # Fields of /proc/stat: user, nice, system and steal.
      TAKEN = [0, 1, 2, 7].freeze

      # The share of the machine from which on it is worth a word.
      SHARE = 0.1

      # @return [Integer] the machine's CPUs
      def self.machine(proc: "/proc") = [File.readlines("#{proc}/stat").grep(/\Acpu\d/).size, 1].max

      # It begins.
      #
      # @param pid [Integer] the process whose descendants are no others, and itself
      def initialize(pid = Process.pid, proc: "/proc")
        @pid = pid
        @proc = proc
        @began = now
        @before = foreign
      end

      # @return [Float] how many CPUs others have taken since then
      def cpus
        seconds = [now - @began, 0.01].max
        ((foreign - @before) / TICKS / seconds).clamp(0.0, OtherLoad.machine(proc: @proc).to_f)
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # Ticks of all that is not this process's family.
      def foreign
        all = File.read("#{@proc}/stat").lines.first.split.drop(1).values_at(*TAKEN).sum(&:to_i)
        all - family
      end

      # Ticks of the living, and of their children that have ended.
      def family
        rows = Dir.glob("#{@proc}/[0-9]*/stat").to_h { |file| [File.basename(File.dirname(file)).to_i, fields(file)] }.compact
        children = rows.keys.group_by { |pid| rows[pid][1].to_i }
        found = [@pid]
        found.each { |pid| found.concat(children.fetch(pid, [])) }
        rows.values_at(*found).compact.sum { |row| row.values_at(11, 12, 13, 14).sum(&:to_i) }
      end

      # From the state on: what precedes it is a name in parentheses.
      def fields(file)
        File.read(file).rpartition(") ").last.split
      rescue SystemCallError
        nil
      end
    end
  end
end
