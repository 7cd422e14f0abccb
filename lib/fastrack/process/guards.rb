# frozen_string_literal: true

require_relative "../log"
require_relative "orphans"

module Fastrack
  # Closes the server's descriptors in forked processes. A process that the app forks must keep none of them: no connection of a client, no
  # port after the server is gone, and not the pipe by which workers notice the master's death. The server's own forks keep the descriptors
  # that they name. Programs started by exec lose all descriptors anyway. The guard is installed in the master, where the ConfigFile,
  # before_exec and an app that rackup has loaded may fork, in generation 0, in molds and in workers.
  #
  # Since Ruby 3.1 all forks of Ruby go through Process._fork, except Process.daemon.
  module ForkGuard
    @lock = Mutex.new
    @shared = []

    class << self
      # @return [Array<#close>] objects that all of the server's own processes have open
      attr_accessor :shared

      # @param in_child [#call, nil] called in each child that the app forks, before the descriptors are closed
      # @yieldreturn [Array<#close>] all objects that the server has open in this process
      def install(in_child = nil, &descriptors)
        @in_child = in_child
        @descriptors = descriptors
        Process.singleton_class.prepend(self) unless Process.singleton_class < self
        note_pids
      end

      def uninstall
        @in_child = @descriptors = nil
      end

      # Runs one of the server's own forks. Forks of other threads wait meanwhile: their children would not close descriptors that the server
      # opens at that moment.
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
        # No other thread may raise an exception between the fork and the note of its pid.
        Thread.handle_interrupt(Object => :never) { yield.tap { |pid| @forked ||= pid if @lock.owned? } }
      end

      # @param keep [Array<#close>]
      def close_descriptors(keep: []) = (descriptors - keep).each(&:close)

      # Process.daemon ends this process. The process that goes on is like a child that the app has forked.
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

      # Wraps Ruby's own _fork, below all wrappers of others.
      def note_pids
        return if @fork

        @fork = Process.method(:_fork)
        @fork = @fork.super_method while @fork.super_method
        original = @fork
        # Ruby would warn that the method is defined anew.
        verbose, $VERBOSE = $VERBOSE, nil
        Process.define_singleton_method(:_fork) { ForkGuard.note { original.call } }
        $VERBOSE = verbose
      end

      def descriptors = @descriptors ? @descriptors.call : []

      # Keeps the helper thread of each engine from changing connections meanwhile.
      def from_engines(&fork)
        descriptors.grep(Engine).reduce(fork) { |inner, engine| -> { engine.while_forking(&inner) } }.call
      end

      # An exception of the fork itself, of another wrapper of _fork for example, goes to the caller. There is no second fork.
      def exclusively
        locked = lock
        yield
      ensure
        @lock.unlock if locked
      end

      def lock
        @lock.lock
      rescue ThreadError
        # A signal handler cannot wait for a lock.
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

    # Process.daemon does not fork by _fork.
    #
    # @return [Integer] see Process.daemon
    def daemon(*how) = ForkGuard.daemonize { super(*how) }
  end

  # Ends a worker that boots when its master, or its channel to the master, ends. Nobody else limits that time, and a hook that hangs would
  # hold the port.
  module OrphanGuard
    # @param death_pipe [IO] at end of file when the master is dead
    # @param channel [ControlChannel] to the master, which sends nothing yet
    # @param name [String] the worker's, for the log
    # @return [Thread] to be killed once the engine watches the pipe
    def self.start(death_pipe, channel, name)
      Thread.new do
        Thread.current.report_on_exception = false
        wait(death_pipe, channel)
        Log.line("#{name} has not booted when its master ended: ending it") unless let_go?(channel)
        Process.exit!(1)
      end
    end

    def self.wait(death_pipe, channel)
      IO.select([death_pipe, channel])
    rescue Errno::ENOMEM
      # Memory may be free again soon.
      sleep 0.1
      retry
    rescue IOError
      # The app has closed the channel.
      death_pipe.wait_readable
    end

    # Whether the master lives, and has said that this process is to end.
    def self.let_go?(channel)
      channel.read.to_a.any?
    rescue IOError
      # The app has closed the channel.
      false
    end
    private_class_method :wait, :let_go?
  end

  # Ends a process after at_exit hooks, threads and finalizers, and before Ruby frees its objects one by one. Freeing them takes 5 to 100 ms
  # of CPU time, and copies memory that is shared with the master.
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

      # The caller keeps the object: the garbage collector must not run its finalizers earlier.
      def finalized(&work) = Object.new.tap { |object| ObjectSpace.define_finalizer(object, work) }
    end
  end
end
