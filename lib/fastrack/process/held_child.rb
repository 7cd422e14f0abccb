# frozen_string_literal: true

require_relative "proc_stat"

module Fastrack
  # A child of this process, forked or adopted (PR_SET_CHILD_SUBREAPER), by what the kernel knows of it: signals reach this child or nobody,
  # whatever becomes of its pid. Where the kernel has pidfds (Linux 5.3), signals go by pidfd_send_signal(2). Elsewhere waitid(2) is asked
  # before each kill(2): the pid of a child stays taken until the child is waited for.
  #
  # Other processes are not held, so no number that a process of the app's says reaches kill(2).
  class HeldChild
    @held = {}

    class << self
      # @param pid [Integer] of fork(2)
      # @return [HeldChild]
      def forked(pid) = hold(pid)

      # @param pid [Integer] of a process that this one has not forked, or that another process has named
      # @param forker [Integer, nil] pid of the process that has named it, and says that it has forked it. Then both have the same users.
      # @return [HeldChild, nil] nil: the process is no child of this one, or is held already, or is another user's
      # @raise [SystemCallError] when the system does not tell
      def adopted(pid, forker = nil)
        return if @held.key?(pid) || !ChildProcess.own?(pid)

        child = hold(pid)
        return child if forker.nil? || ProcStat.users(pid) == ProcStat.users(forker)

        child.release
        nil
      rescue SystemCallError
        # The system lacks descriptors or memory to tell.
        child&.release
        raise
      end

      # @return [Array<#close>] descriptors that a forked process must not keep
      def descriptors = @held.values.filter_map(&:descriptor)

      # Called by a child that has ended.
      def forget(child)
        @held.delete(child.pid) if child.equal?(@held[child.pid])
      end

      private

      def hold(pid) = new(pid).tap { |child| @held[pid] = child }
    end

    # @return [Integer]
    attr_reader :pid

    # @return [Process::Status, nil] nil while the child runs, and if other code in this process has waited for it
    attr_reader :status

    # @return [IO, nil] the pidfd
    attr_reader :descriptor

    # Use .forked and .adopted.
    def initialize(pid)
      @pid = pid
      @ended = false
      @descriptor = ChildProcess.hold(pid)&.then { |number| IO.for_fd(number, "r") }
    end
    private_class_method :new

    # @return [Boolean] whether the child has ended; its status is noted, and its pid is free
    def ended?
      _, @status = Process.wait2(@pid, Process::WNOHANG) unless @ended
      release if @status
      @ended
    rescue Errno::ECHILD
      # Other code in this process has waited for all children.
      release
      true
    end

    # @param name [String, Symbol, Integer]
    # @return [Boolean] false if the child has ended
    def signal(name)
      return false if @ended

      number = name.is_a?(Integer) ? name : Signal.list.fetch(name.to_s)
      return deliver(number) if @descriptor && !@descriptor.closed?
      return false unless ChildProcess.own?(@pid)

      Process.kill(number, @pid)
      true
    rescue Errno::ESRCH
      false
    end

    # Whether this process waits for the other one: see GrandChild.
    def child? = true

    # Lets Ruby wait for the child, because this process no longer does.
    def detach
      return if @ended

      release
      Process.detach(@pid)
    end

    # Gives the child up: it gets no signal from here any more.
    def release
      @ended = true
      @descriptor&.close
      HeldChild.forget(self)
    end

    private

    def deliver(number)
      error = ChildProcess.signal(@descriptor.fileno, number)
      return error.zero? if [0, Errno::ESRCH::Errno].include?(error)

      # A sandbox may forbid the call (seccomp(2)).
      ChildProcess.own?(@pid) && Process.kill(number, @pid) == 1
    end
  end
end
