# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "../process/held_child"
require_relative "../process/last_words"
require_relative "../process/orphans"
require_relative "../worker/control_channel"
require_relative "grand_child"
require_relative "hooks"
require_relative "worker_handle"

module Fastrack
  # Has molds fork workers. The master waits for the answer, which an order to end the server cuts short.
  class WorkerForks
    # Seconds that a mold has for its answer. Generation 0 also has the time of its hooks.
    ANSWER_TIME = 5

    # Raised when a mold has not forked, and has logged the reason.
    Refused = Class.new(Error)

    # Errors by which the master notices that a mold has ended, or is about to.
    GONE = [EOFError, Errno::EPIPE, Errno::ECONNRESET].freeze

    # Errors for which the mold is the reason. For all others, such as Errno::EMFILE, the master is.
    FAILURES = [*GONE, ControlChannel::NoAnswer, ControlChannel::Broken, TimeLimit::Unfinished].freeze
    private_constant :GONE, :FAILURES

    # @return [Array<ControlChannel>] channels of the last worker, which a forked process may have inherited
    attr_reader :spawning

    # @param launcher [Launcher]
    # @param hooks [MasterHooks]
    # @yieldparam message [Message] each message of a mold that is no answer
    # @yieldparam mold [WorkerHandle]
    def initialize(launcher, hooks, &other)
      @launcher = launcher
      @hooks = hooks
      @other = other
      @spawning = []
    end

    # @param mold [WorkerHandle]
    # @param entry [Array(Scoreboard, Integer), nil] the worker's place in the scoreboard
    # @return [WorkerHandle, nil] nil when the mold fails; then the mold is stopped
    # @raise [StandardError] when the master fails
    def from_mold(mold, nr, entry, generation)
      order(mold, nr, entry, generation, ANSWER_TIME)
    rescue Refused, *FAILURES => e
      give_up(mold, e, "refork: ")
      nil
    end

    # @param first [MoldHandle, nil] generation 0
    # @return [WorkerHandle]
    # @raise [StandardError, TimeLimit::Unfinished] when there is no worker
    def from_first(first, nr, entry, generation)
      raise Refused, "there is no generation 0" unless first

      time = @launcher.configuration.worker_boot_timeout
      order(first, nr, entry, generation, (time + ANSWER_TIME if time.positive?))
    rescue TimeLimit::Interrupted
      first.terminate
      raise
    rescue *FAILURES => e
      raise Refused, give_up(first, e)
    end

    private

    # Ends the mold. A mold that has gone is not killed, because its exit status tells the reason.
    #
    # @param context [String] for the log
    # @return [String] the reason
    def give_up(mold, error, context = "")
      gone = GONE.any? { |kind| error.is_a?(kind) }
      reason = gone ? "it has ended" : Error.reason(error)
      Log.line("#{context}#{mold.name} forks no worker: #{reason}", :error)
      gone ? mold.stop : mold.kill("it has forked no worker")
      reason
    end

    # @param seconds [Numeric, nil] for the answer; nil: no limit
    # @return [WorkerHandle]
    # @raise [StandardError] when there is no worker, or its pid is unknown; a worker with an unknown pid ends with its channel
    def order(mold, nr, entry, generation, seconds)
      ours, theirs = @spawning = ControlChannel.pair
      # A graceful stop closes the proxy's listeners while workers still serve.
      listeners = @launcher.open_listeners.reject(&:closed?)
      descriptors = [theirs.to_io, *[*listeners, *@launcher.queue&.fds].map { |one| copy(one) }]
      pid = @hooks.within(seconds ? seconds + 1 : 0, grace: TimeLimit::MOMENT) do
        mold.channel.order(nr, entry&.last, listeners.map(&:identity), descriptors, seconds) { |message| @other.call(message, mold) }
      end
      raise Refused, LastWords.of(mold.pid) || "it could not fork" unless pid.positive?

      process = process_of(pid, mold) or raise ControlChannel::Broken, "it has named a process that it has not forked"
      Orphans.own(pid)
      handle_of(mold, nr, entry, generation, process, ours)
    rescue StandardError, TimeLimit::Unfinished
      ours&.close
      raise
    ensure
      theirs&.close
    end

    # @param one [Listener, Integer]
    def copy(one) = IO.for_fd(one.is_a?(Integer) ? one : one.fileno, autoclose: false)

    # The number is no more than the mold's word. Without `user` all processes have the master's rights, also where there is no /proc to tell.
    #
    # @return [HeldChild, GrandChild, nil]
    def process_of(number, mold)
      user = @launcher.configuration.user
      @launcher.subreaper? ? HeldChild.adopted(number, (mold.pid if user)) : GrandChild.new(number, user)
    end

    def handle_of(mold, nr, entry, generation, process, channel)
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      signal = @launcher.interactive? ? "TERM" : "QUIT"
      WorkerHandle.new(nr, process, generation, channel, entry, now, signal).tap { |handle| handle.origin = mold }
    end
  end
end
