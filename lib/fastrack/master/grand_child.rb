# frozen_string_literal: true

require_relative "../process/exit_status"
require_relative "../process/guards"
require_relative "../process/proc_stat"

module Fastrack
  # A worker where there is no subreaper (macOS): the child of a mold, whose pid only the mold knows. No kernel can confirm that pid to the
  # master, so a master of root's does not signal it as root: a child with the ids of the app's user does, who may signal his own processes.
  class GrandChild
    # @return [Integer] as the mold has said
    attr_reader :pid

    # @return [ExitStatus, nil] as the mold has said
    attr_reader :status

    # @param user [UserGroup, nil] option User
    def initialize(pid, user)
      @pid = pid
      @user = user
    end

    def child? = false

    # Called when the mold has waited for the process.
    #
    # @param number [Integer] see wait(2)
    def reaped(number)
      @status = ExitStatus.new(@pid, number)
    end

    def ended? = !@status.nil? || !ProcStat.exists?(@pid)

    # @param name [String, Symbol, Integer]
    # @return [Boolean] false if it cannot be sent
    def signal(name)
      return false if @status
      return signal_as_user(name) if @user && Process.euid.zero?

      Process.kill(name, @pid) == 1
    rescue SystemCallError
      false
    end

    # The mold waits for it.
    def detach = nil

    private

    def signal_as_user(name)
      child = ForkGuard.own_fork { Process.fork { kill_as_user(name) } }
      Process.wait2(child).last.success?
    end

    def kill_as_user(name)
      @user.switch
      Process.kill(name, @pid)
      exit!(0)
    ensure
      exit!(1)
    end
  end
end
