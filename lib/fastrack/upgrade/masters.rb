# frozen_string_literal: true

require "socket"
require_relative "../listener/inherited"
require_relative "../log"
require_relative "../master/process_setup"
require_relative "../process/guards"
require_relative "../process/held_child"
require_relative "../process/last_words"
require_relative "../process/start_command"
require_relative "../proxy"
require_relative "../worker/control_channel"
require_relative "early_errors"
require_relative "roots_program"

module Fastrack
  # The new master's view of the old one: a channel, and the shared queue of the workers. Both come as descriptors in environment variables.
  # The variables are removed, so that programs of the app do not get them.
  class OldMaster
    # The channel's descriptor.
    VARIABLE = "FASTRACK_PREDECESSOR"
    # The queue's layout and descriptors. With another layout the new master does not take over idle connections, and old workers close
    # them.
    QUEUE_VARIABLE = "FASTRACK_QUEUE"

    class << self
      # @param environment [Hash, ENV]
      # @return [OldMaster, nil] nil without an old master
      def take_over(environment = ENV)
        number = environment.delete(VARIABLE) or return
        socket = UNIXSocket.for_fd(Integer(number, 10))
        socket.close_on_exec = true
        new(ControlChannel.new(socket, :old_master))
      rescue SystemCallError, ArgumentError
        # The variable is another program's, or the descriptor was closed.
        nil
      end

      # @param wanted [Boolean] whether this server's workers share a queue
      # @param environment [Hash, ENV]
      # @return [SharedQueue, nil] the old master's, or a new one
      def take_over_queue(wanted, environment = ENV)
        text = environment.delete(QUEUE_VARIABLE)
        inherited = inherit_queue(text, wanted) if text
        inherited || (wanted ? SharedQueue.new : nil)
      end

      private

      def inherit_queue(text, wanted)
        layout, _, numbers = text.rpartition(":")
        files = numbers.split(",").map { |number| IO.for_fd(Integer(number, 10)) }
        raise ArgumentError, "it is of another version" if wanted && layout != SharedQueue::LAYOUT

        # The queue duplicates the descriptors.
        SharedQueue.from_fds(files.map(&:fileno)) if wanted
      rescue SystemCallError, ArgumentError, TypeError, IOError => e
        Log.line("#{QUEUE_VARIABLE} cannot be used (#{e.message}): waiting connections are not taken over") if wanted
        nil
      ensure
        files&.each(&:close)
      end
    end

    # @return [ControlChannel]
    attr_reader :channel

    # @return [Integer, nil] nil if the old master is not this process's parent, because rackup's --daemonize forks
    attr_reader :pid

    # @param channel [ControlChannel]
    def initialize(channel)
      @channel = channel
      @pid = Process.ppid unless Process.ppid == 1
    end

    # Tells the old master that all workers of the new one serve.
    #
    # @param quit [Boolean] whether the old master is to quit now
    def ready(quit:) = @channel.write(quit ? ControlChannel::READY_AND_QUIT : ControlChannel::READY)
  end

  # The old master's view of the new one, which the old one has started by its own start command.
  #
  #     booting --ready--> ready
  #        \---- BootTimeout ----> timed out
  class NewMaster
    # Exit status when the program could not be run, as in a shell.
    NOT_FOUND = 127

    # Variables with descriptors or the pid of this process.
    STALE_VARIABLES = [
      InheritedListeners::VARIABLE, InheritedListeners::FORMER, OldMaster::VARIABLE, OldMaster::QUEUE_VARIABLE, LastWords::VARIABLE, Proxy::VARIABLE, RootsProgram::VARIABLE, EarlyErrors::VARIABLE,
      *SystemdSockets::VARIABLES
    ].freeze

    class << self
      # @param launcher [Launcher]
      # @param now [Float] monotonic seconds
      # @yield in the child, before exec(2)
      # @raise [SystemCallError] when the process cannot fork
      def start(launcher, now, &in_child)
        errors = EarlyErrors.open
        ForkGuard.own_fork do
          kept = [*launcher.listeners, launcher.queue]
          pid, channel = ControlChannel.fork(ControlChannel.pair, kept, launcher.hooks.fork_limit) do |theirs|
            become_master(launcher, theirs, errors, in_child)
          end
          new(HeldChild.forked(pid), channel, now, launcher.configuration, errors).tap { channel.write(ControlChannel::KNOWN) }
        end
      rescue Exception # rubocop:disable Lint/RescueException -- it is raised again
        errors&.close
        raise
      end

      private

      def become_master(launcher, channel, errors, in_child)
        in_child.call
        run_program(launcher, channel, errors)
      rescue Error => e
        Log.line("cannot start a new master: #{e.message}", :error)
      rescue Exception => e # rubocop:disable Lint/RescueException -- nothing above would show it
        Log.exception("cannot start a new master", e)
      ensure
        exit!(NOT_FOUND)
      end

      def run_program(launcher, channel, errors)
        start = StartCommand.current
        ENV.replace(start.environment.except(*STALE_VARIABLES))
        start.enter
        ProcessSetup.find_directory(launcher.configuration)
        limit_hook(launcher.configuration.boot_timeout)
        launcher.configuration.call_hook(:before_exec, launcher)
        pass_on(launcher, channel)
        program, *arguments = start.command
        Process.exec([program, program], *arguments, descriptors(launcher, channel).merge(errors.redirections))
      end

      # Ends a hook that hangs, one second after the old master should have ended it. If the old master has ended before BootTimeout, no
      # other process frees the port.
      def limit_hook(seconds)
        ChildProcess.end_within(seconds + 1, NOT_FOUND, <<~LINE)
          fastrack: before_exec has not finished within BootTimeout (pid #{Process.pid}): ending it
        LINE
      end

      def pass_on(launcher, channel)
        InheritedListeners.pass_on(launcher.listeners, launcher.former_listeners, supervised: launcher.supervised?)
        ENV[OldMaster::VARIABLE] = channel.to_io.fileno.to_s
        ENV[LastWords::VARIABLE] = LastWords.writer.fileno.to_s
        RootsProgram.pass_on(launcher.configuration, launcher.names)
        ENV[Proxy::VARIABLE] = Proxy.path if launcher.configuration.proxy?
        ENV[OldMaster::QUEUE_VARIABLE] = "#{SharedQueue::LAYOUT}:#{launcher.queue.fds.join(",")}" if launcher.queue
      end

      # Only these descriptors are inherited, so that none pile up from one upgrade to the next.
      def descriptors(launcher, channel)
        numbers = [*launcher.listeners.map(&:fileno), *launcher.queue&.fds, channel.to_io.fileno, LastWords.writer.fileno]
        numbers.to_h { |number| [number, number] }.merge(close_others: true)
      end
    end

    # @return [ControlChannel]
    attr_reader :channel
    # @return [Float, nil] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param process [HeldChild]
    # @param channel [ControlChannel]
    # @param now [Float] monotonic seconds
    # @param configuration [Configuration]
    # @param errors [EarlyErrors]
    def initialize(process, channel, now, configuration, errors)
      @process = process
      @errors = errors
      @channel = channel
      @channel.from = :new_master
      @grace = configuration.graceful_timeout
      @due_at = now + configuration.boot_timeout
      @state = :booting
    end

    # @return [Integer]
    def pid = @process.pid

    def booting? = @state == :booting

    # Whether the new master was told to stop because it took too long to boot.
    def timed_out? = @state == :timed_out

    # Called when all workers of the new master serve.
    def ready
      @errors.close
      @state = :ready
      @due_at = nil
    end

    # Stops the new master by TERM after BootTimeout, and later by KILL.
    #
    # @return [Boolean] whether the new master has just timed out
    def step(now)
      return false if @due_at.nil? || now < @due_at
      return signal(:KILL) && false unless booting?

      @state = :timed_out
      @due_at = now + @grace
      signal(:TERM)
    end

    # Sends a signal, and TIMED_OUT by the channel. With rackup's --daemonize the started process forks: the serving process has an unknown
    # pid, and reads the channel.
    #
    # @param name [Symbol, String]
    # @return [true]
    def signal(name)
      @due_at = nil if name == :KILL
      @channel.write(ControlChannel::TIMED_OUT)
      @process.signal(name)
      true
    end

    # @return [Array<Message>] messages of the new master
    def messages
      return [] if @channel.closed?

      # The kernel closes a process's descriptors before it sends CHLD, so CHLD is on its way.
      @channel.read || [].tap { @channel.close }
    end

    # Whether the new master has failed, or has exited and closed its channel. With rackup's --daemonize the started process exits with 0,
    # and the serving process keeps the channel open.
    def gone? = @process.ended? && (@channel.closed? || (!status.nil? && !status.success?))

    # @return [String] how the new master ended, for the log
    def ending
      return "was not ready within BootTimeout" if timed_out?
      return "exited" if status.nil?

      how = status.signaled? ? "was killed by SIG#{Signal.signame(status.termsig)}" : "exited with status #{status.exitstatus}"
      booting? ? "#{how} before it was ready" : how
    end

    # Logs what the program has written before its end, if Fastrack has not run in it.
    #
    # @return [String, nil] the reason
    def early_reason = @errors.log

    # Lets Ruby reap the process, because this master exits first.
    def detach = @process.detach

    private

    # @return [Process::Status, nil] nil also if a part of the app has waited for the process
    def status = @process.status
  end
end
