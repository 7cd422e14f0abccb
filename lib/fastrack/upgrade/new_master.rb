# frozen_string_literal: true

require_relative "../clock"
require_relative "../worker/control_channel"
require_relative "../process/fork_guard"
require_relative "../hook"
require_relative "../listener/inherited"
require_relative "../log"
require_relative "old_master"
require_relative "../shared_queue"
require_relative "start_command"
require_relative "../systemd_sockets"

module Fastrack
  # A master's view of the new one that it has started with the command that it was started with itself.
  #
  #     booting --ready--> ready
  #        \---- boot timeout ----> given up
  class Reexec
    # What an end of the new master's process says, when no program could be run in it.
    NOT_FOUND = 127

    # Variables with descriptors of this process's, or with its pid.
    STALE_VARIABLES = [
      InheritedListeners::VARIABLE, Predecessor::VARIABLE, SharedQueue::VARIABLE, *SystemdSockets::VARIABLES
    ].freeze

    # @return [Integer]
    attr_reader :pid
    # @return [ControlChannel]
    attr_reader :channel
    # @return [Float, nil] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param launcher [Launcher]
    # @param release [Proc] lets go, in the child, of what a program has no use for
    # @raise [SystemCallError] when there can be no other process
    def self.start(launcher, release)
      ForkGuard.own_fork do
        Log.flush
        pid, channel = ControlChannel.fork(ControlChannel.pair) { |theirs| become_master(launcher, release, theirs) }
        new(pid, channel, Clock.now, launcher.configuration)
      end
    end

    class << self
      private

      def become_master(launcher, release, channel)
        release.call
        run_program(launcher, channel)
      rescue Exception => e # rubocop:disable Lint/RescueException -- nothing above would show it
        Log.exception("cannot start a new master", e)
      ensure
        exit!(NOT_FOUND)
      end

      def run_program(launcher, channel)
        context = StartContext.current
        # A folder that has been moved or replaced is entered anew.
        Dir.chdir(context.directory)
        ENV.replace(context.environment.except(*STALE_VARIABLES))
        Hook.call(launcher.configuration.before_exec, launcher)
        ENV[InheritedListeners::VARIABLE] = InheritedListeners.describe(launcher.listeners, given: launcher.listeners_given?)
        ENV[Predecessor::VARIABLE] = channel.to_io.fileno.to_s
        ENV[SharedQueue::VARIABLE] = launcher.queue.description if launcher.queue
        program, *arguments = context.command
        Process.exec([program, program], *arguments, descriptors(launcher, channel))
      end

      # Nothing else is inherited, so that nothing piles up from one master to the next.
      def descriptors(launcher, channel)
        numbers = [*launcher.listeners.map(&:fileno), *launcher.queue&.descriptors, channel.to_io.fileno]
        numbers.to_h { |number| [number, number] }.merge(close_others: true)
      end
    end

    def initialize(pid, channel, now, configuration)
      @pid = pid
      @channel = channel
      @grace = configuration.graceful_timeout
      @due_at = now + configuration.boot_timeout
      @state = :booting
      @status = nil
    end

    def booting?
      @state == :booting
    end

    # Whether it was told to end, because it has taken too long.
    def given_up?
      @state == :given_up
    end

    # All of its workers serve.
    def ready
      @state = :ready
      @due_at = nil
    end

    # It has taken too long: it is asked to end, and then not asked any more.
    #
    # @return [Boolean] whether it has just been given up
    def step(now)
      return false if @due_at.nil? || now < @due_at
      return signal(:KILL) && false unless booting?

      @state = :given_up
      @due_at = now + @grace
      signal(:TERM)
      true
    end

    # @param name [Symbol, String]
    def signal(name)
      @due_at = nil if name == :KILL
      # One that has become another process (rackup's --daemonize) has no pid that this one knows.
      @status.nil? ? Process.kill(name, @pid) : @channel.say(ControlChannel::GIVE_UP)
      true
    rescue SystemCallError
      true
    end

    # @return [Array<String>] what it has said since
    def words
      return [] if @channel.closed?

      @channel.heard || hang_up
    end

    # Whether it is gone: it has failed, or has ended and closed its channel. One that has gone on as another process
    # (rackup's --daemonize) has ended with success, and its channel is open.
    def gone?
      _, @status = Process.wait2(@pid, Process::WNOHANG) if @status.nil?
      !@status.nil? && (@channel.closed? || !@status.success?)
    rescue Errno::ECHILD
      # Some part of the app has waited for it.
      @channel.closed?
    end

    # @return [String] how it ended, for the log
    def ending
      return "was not ready within BootTimeout" if @state == :given_up
      return "ended" if @status.nil?

      how = @status.signaled? ? "was killed by SIG#{Signal.signame(@status.termsig)}" : "ended with status #{@status.exitstatus}"
      @state == :booting ? "#{how} before it was ready" : how
    end

    # Has it reaped by Ruby, where this master ends before it.
    def abandon
      Process.detach(@pid) if @status.nil?
    end

    private

    # The kernel closes a process's descriptors before it tells its parent; CHLD is on its way.
    def hang_up
      @channel.close
      []
    end
  end
end
