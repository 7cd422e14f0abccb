# frozen_string_literal: true

require_relative "log"
require_relative "process/pid_file"
require_relative "upgrade/new_master"

module Fastrack
  # One master after the other: how this one starts the next (USR2), and how it takes over from the one before. Both are
  # seen from here, because a master can be in the middle of either and must not be in the middle of both.
  class Succession
    # Out of reach of the garbage collector.
    KEPT = [] # rubocop:disable Style/MutableConstant
    private_constant :KEPT

    # @param launcher [Launcher]
    # @param predecessor [Predecessor, nil]
    def initialize(launcher, predecessor)
      @launcher = launcher
      @predecessor = predecessor
      @reexec = nil
      @cancelled = false
    end

    # @return [Array<ControlChannel>] those to both sides
    def channels
      [@predecessor, @reexec].compact.map(&:channel).reject(&:closed?)
    end

    # @return [Float, nil] monotonic seconds
    def due_at
      @reexec&.due_at
    end

    # Starts a new master, unless there are two of them already.
    #
    # @yield in the new master's process, to let go of what it has no use for
    # @return [Boolean] whether there is one now
    def start(&release)
      obstacle = why_not
      Log.line("USR2 is ignored: #{obstacle}") if obstacle
      obstacle.nil? && launch(release)
    end

    # This master's workers all serve: that is what the one before has waited for.
    #
    # @param quit [Boolean] whether it is to end now
    def ready(quit:)
      @predecessor&.ready(quit: quit)
    end

    # The server is to stop, not only this master: one that is still booting would be a server that nobody wants.
    #
    # @param name [String] the signal
    def cancel(name)
      return unless @reexec&.booting?

      @cancelled = true
      @reexec.signal(name)
    end

    # Whether the server goes on without this master.
    def followed?
      !@reexec.nil? && !@reexec.given_up? && !@cancelled
    end

    # Does what is due.
    def step(now)
      return unless @reexec&.step(now)

      Log.line("the new master (pid #{@reexec.pid}) was not ready within BootTimeout; it is told to end")
    end

    # Has a look whether the new master's process is there still. To be called after the queue of signals was emptied: CHLD
    # comes after the end of the channel, and whoever takes it has to look.
    #
    # @return [Symbol, nil] :alone when it is gone
    def reap
      lose_successor if @reexec&.gone?
    end

    # @param ready [Array<ControlChannel>] those with something to be heard
    # @return [Array<Symbol>] what it means for this master: :quit, :stop, :alone (the new one is gone)
    def listen(ready)
      [hear_successor(ready), hear_predecessor(ready)].compact
    end

    # At the end of this master. The channels stay open for as long as the process is there, at_exit hooks and all: the
    # other master takes their end for its end.
    def close
      @reexec&.abandon
      KEPT << self
    end

    private

    def launch(release)
      @launcher.pid_file&.set_aside
      @reexec = Reexec.start(@launcher, release)
      Log.line("starting a new master (pid #{@reexec.pid})")
      true
    rescue SystemCallError => e
      @launcher.pid_file&.restore
      Log.line("cannot start a new master, this one carries on: #{e.message}")
      false
    end

    def why_not
      if @reexec then "the new master (pid #{@reexec.pid}) is there already"
      elsif @predecessor then "the old master has not ended yet"
      elsif ENV[ServerStarter::VARIABLE] then "start_server deploys by a HUP to itself"
      end
    end

    def hear_successor(ready)
      return unless @reexec

      words = ready.include?(@reexec.channel) ? @reexec.words : []
      return lose_successor if @reexec.gone?
      return if (words & [ControlChannel::READY, ControlChannel::READY_AND_QUIT]).empty? || !@reexec.booting?

      @reexec.ready
      Log.line("the new master (pid #{@reexec.pid}) is ready")
      :quit if words.include?(ControlChannel::READY_AND_QUIT)
    end

    def lose_successor
      lost = @reexec
      lost.channel.close
      @reexec = nil
      @launcher.pid_file&.restore
      # Said last: whoever reads it finds the pid file as it was.
      Log.line("the new master (pid #{lost.pid}) #{lost.ending}; this one carries on")
      :alone
    end

    def hear_predecessor(ready)
      return unless @predecessor && ready.include?(@predecessor.channel)

      words = @predecessor.words
      return words.include?(ControlChannel::GIVE_UP) ? :stop : nil if words

      @predecessor.channel.close
      @predecessor = nil
      # Its at_exit hooks, rackup's among them, may have removed the file that is this master's by now.
      @launcher.pid_file&.keep
      @launcher.pid_file&.remove_aside
      nil
    end
  end
end
