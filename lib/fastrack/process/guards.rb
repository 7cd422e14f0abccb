# frozen_string_literal: true

module Fastrack
  # Closes the server's descriptors in forked processes. An app's own fork must keep none of them: neither clients'
  # connections, nor the port after the server is gone, nor the pipe by which workers notice the master's death. The
  # server's own forks keep those that they name. (Programs started by exec lose all of them anyway.)
  #
  # Since Ruby 3.1 all of Ruby's forks go through Process._fork.
  module ForkGuard
    @lock = Mutex.new

    class << self
      # @param in_child [#call, nil] called in each child that the app forks, before the descriptors are closed
      # @yieldreturn [Array<#close>] all that the server has open in this process
      def install(in_child = nil, &descriptors)
        @in_child = in_child
        @descriptors = descriptors
        Process.singleton_class.prepend(self) unless Process.singleton_class < self
      end

      def uninstall
        @in_child = @descriptors = nil
      end

      # For the server's own forks. Other threads' forks wait meanwhile: their children would not close descriptors that are
      # just being opened.
      def own_fork(&block)
        @lock.synchronize(&block)
      end

      # @param keep [Array<#close>]
      def close_descriptors(keep: [])
        (@descriptors.call - keep).each(&:close) if @descriptors
      end

      # @yield to fork(2)
      # @return [Integer] as fork(2)
      def guard(&fork)
        own = @lock.owned?
        parent = Process.pid
        Orphans.own(own ? yield : exclusively(&fork))
      ensure
        # Also when another wrapper has raised in the child.
        in_child(own) unless Process.pid == parent
      end

      private

      # What the fork itself raises, another wrapper of _fork for example, goes to whoever forks: it must not fork twice.
      def exclusively
        locked = lock
        yield
      ensure
        @lock.unlock if locked
      end

      def lock
        @lock.lock
      rescue ThreadError
        # A signal handler may not wait for a lock.
        nil
      end

      def in_child(own)
        @lock = Mutex.new
        return if own

        @in_child&.call
        close_descriptors
        uninstall
      end
    end

    # @return [Integer] as fork(2)
    def _fork
      ForkGuard.guard { super }
    end
  end

  # Runs a block before this process ends by `exit!`, which runs no at_exit hooks.
  module ExitGuard
    # Process.exit! and Kernel.exit!
    module Public
      # @param status see Process.exit!
      def exit!(*status)
        ExitGuard.before_exit(status)
        super
      end
    end

    # exit! without a receiver
    module Private
      private

      def exit!(*status)
        ExitGuard.before_exit(status)
        super
      end
    end

    class << self
      # @yield before the end of this process, but not of its forks
      def install(&work)
        @work = work
        @pid = Process.pid
        return if Kernel < Private

        [Process, Kernel].each { |one| one.singleton_class.prepend(Public) }
        Kernel.prepend(Private)
      end

      # @param status [Array] the arguments; with invalid ones exit! raises
      def before_exit(status)
        @work.call if @pid == Process.pid && (status in [] | [true | false | Integer])
      end
    end
  end

  # Reaps the processes that this one has adopted. As process 1 of a container, or as a subreaper (prctl(2)), it becomes the
  # parent of what workers and the app's commands leave behind. What the app has started in this process is the app's to
  # wait for.
  class Orphans
    # Seconds between two looks. A zombie is left for as long to a thread that may be waiting for it.
    GRACE = 1

    # Notes the pids of what this process starts. Ruby's other ways to do so (`system`, backticks) wait for it at once.
    module Spawn
      def spawn(...)
        Orphans.own(super)
      end

      def popen(...)
        super.tap { |io| Orphans.own(io.pid) if io.instance_of?(IO) && !io.closed? }
      end
    end

    @own = {}

    class << self
      # @return [Orphans, nil] nil if this process adopts none
      def start
        return unless Fastrack.adopts_orphans?

        [Process.singleton_class, Kernel.singleton_class, IO.singleton_class].each { |one| one.prepend(Spawn) }
        Kernel.prepend(Module.new { private def spawn(...) = Orphans.own(super) })
        @pid = Process.pid
        new(@own)
      end

      # @return [Integer] the pid
      def own(pid)
        # Workers reap nothing, and need no list.
        @own[pid] = true if @pid == Process.pid
        pid
      end
    end

    # @return [Float, nil] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param own [Hash{Integer => true}] pids of what this process has started
    def initialize(own)
      @own = own
      @seen = []
      # What the app has started while it was loaded.
      states.each_key { |pid| @own[pid] = true }
    end

    # Called whenever the master wakes up: a child may have ended.
    def step(now)
      @due_at ||= now + GRACE
      return if now < @due_at

      started = @own.keys
      children = states
      (started - children.keys).each { |pid| @own.delete(pid) }
      zombies = children.filter_map { |pid, state| pid if state == "Z" && !@own.key?(pid) }
      (zombies & @seen).each { |pid| Process::Status.wait(pid, Process::WNOHANG) }
      @seen = zombies - @seen
      @due_at = @seen.any? ? now + GRACE : nil
    end

    private

    # @return [Hash{Integer => String}] this process's children, and their states in proc(5)
    def states
      Dir.children("/proc").grep(/\A\d+\z/).filter_map do |pid|
        state, parent = File.read("/proc/#{pid}/stat").rpartition(")").last.split
        [pid.to_i, state] if parent.to_i == Process.pid
      rescue SystemCallError
        nil
      end.to_h
    end
  end
end
