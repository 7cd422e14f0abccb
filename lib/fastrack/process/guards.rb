# frozen_string_literal: true

require_relative "../log"
require_relative "orphans"

module Fastrack
  # Closes the server's descriptors in forked processes. An app's own fork must keep none of them: neither clients'
  # connections, nor the port after the server is gone, nor the pipe by which workers notice the master's death. The
  # server's own forks keep those that they name. (Programs started by exec lose all of them anyway.)
  #
  # Since Ruby 3.1 all of Ruby's forks go through Process._fork.
  module ForkGuard
    @lock = Mutex.new
    @shared = []

    class << self
      # @return [Array<#close>] what the server's own processes have in common, whatever else each of them has open
      attr_accessor :shared

      # @param in_child [#call, nil] called in each child that the app forks, before the descriptors are closed
      # @yieldreturn [Array<#close>] all that the server has open in this process
      def install(in_child = nil, &descriptors)
        @in_child = in_child
        @descriptors = descriptors
        Process.singleton_class.prepend(self) unless Process.singleton_class < self
        note_pids
      end

      def uninstall
        @in_child = @descriptors = nil
      end

      # For the server's own forks. Other threads' forks wait meanwhile: their children would not close descriptors that are
      # just being opened.
      def own_fork
        @lock.synchronize do
          @forked = nil
          yield
        end
      end

      # @return [Integer, nil] the pid of the child that #own_fork has forked, whatever wrappers of _fork have raised by then
      attr_reader :forked

      # @yield to fork(2)
      # @return [Integer] as fork(2)
      def note
        # Between the two nothing may be raised by another thread.
        Thread.handle_interrupt(Object => :never) { yield.tap { |pid| @forked ||= pid if @lock.owned? } }
      end

      # @param keep [Array<#close>]
      def close_descriptors(keep: []) = (descriptors - keep).each(&:close)

      # The process that goes on is like a child that the app has forked.
      #
      # @yield to daemon(3)
      def daemonize(&fork)
        return yield if descriptors.grep(Engine).empty?

        from_engines(&fork).tap { in_child(false) }
      end

      # @yield to fork(2)
      # @return [Integer] as fork(2)
      def guard(&fork)
        own = @lock.owned?
        parent = Process.pid
        Orphans.own(own ? from_engines(&fork) : exclusively { from_engines(&fork) })
      ensure
        # Also when another wrapper has raised in the child.
        in_child(own) unless Process.pid == parent
      end

      private

      # Below the wrappers of others, whenever those came.
      def note_pids
        return if @fork

        @fork = Process.method(:_fork)
        @fork = @fork.super_method while @fork.super_method
        original = @fork
        # No warning that it is defined anew.
        verbose, $VERBOSE = $VERBOSE, nil
        Process.define_singleton_method(:_fork) { ForkGuard.note { original.call } }
        $VERBOSE = verbose
      end

      def descriptors = @descriptors ? @descriptors.call : []

      # A worker's helper thread handles connections meanwhile.
      def from_engines(&fork)
        descriptors.grep(Engine).reduce(fork) { |inner, engine| -> { engine.while_forking(&inner) } }.call
      end

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
        [*descriptors, *@shared].each(&:close)
        uninstall
      end
    end

    # @return [Integer] as fork(2)
    def _fork = ForkGuard.guard { super }

    # It does not fork by _fork.
    #
    # @return [Integer] see Process.daemon
    def daemon(*how) = ForkGuard.daemonize { super(*how) }
  end

  # Ends a worker that boots when its master ends, or its channel to that: nobody else limits that time, and it would hold the port for
  # as long as a hook hangs.
  module OrphanGuard
    # @param death_pipe [IO] at end of file when the master is dead
    # @param channel [ControlChannel] to the master, which says nothing yet
    # @param name [String] the worker's, for the log
    # @return [Thread] to be killed once the engine watches the pipe
    def self.start(death_pipe, channel, name)
      Thread.new do
        Thread.current.report_on_exception = false
        wait(death_pipe, channel)
        Log.line("#{name} has not booted when its master ended: ending it")
        Process.exit!(1)
      end
    end

    def self.wait(death_pipe, channel)
      IO.select([death_pipe, channel])
    rescue Errno::ENOMEM
      # There will be memory again.
      sleep 0.1
      retry
    rescue IOError
      # The app has closed the channel.
      death_pipe.wait_readable
    end
    private_class_method :wait
  end

  # Ends a process after at_exit hooks, threads and finalizers, and before Ruby frees all of its objects one by one: that takes
  # 5 to 100 ms of CPU time, and copies memory that is shared with the master.
  module QuickExit
    class << self
      # @param status [Integer]
      def install(status)
        pid = Process.pid
        # Finalizers that are defined while others run come after them.
        @first = finalized do
          @last = finalized do
            # A child that at_exit hooks have forked has a status of its own.
            next unless Process.pid == pid

            Log.flush
            Process.exit!(status)
          end
        end
      end

      private

      # Kept by its caller: the garbage collector must not do it earlier.
      def finalized(&work) = Object.new.tap { |object| ObjectSpace.define_finalizer(object, work) }
    end
  end
end
