# frozen_string_literal: true

module Fastrack
  # The status of a process that another process has waited for, with the methods of Process::Status. Ruby makes no Process::Status from a
  # number.
  #
  # @attr pid [Integer]
  # @attr to_i [Integer] the number of wait(2)
  ExitStatus = Struct.new(:pid, :to_i) do
    def exited? = (to_i & 0x7f).zero?
    def signaled? = !exited?
    def stopped? = false
    def coredump? = to_i.anybits?(0x80)
    def exitstatus = exited? ? (to_i >> 8) & 0xff : nil
    def termsig = exited? ? nil : to_i & 0x7f
    def success? = exited? ? exitstatus.zero? : nil

    def to_s
      exited? ? "pid #{pid} exit #{exitstatus}" : "pid #{pid} SIG#{Signal.signame(termsig)} (signal #{termsig})"
    end

    def inspect = "#<#{self.class}: #{self}>"
  end
end
