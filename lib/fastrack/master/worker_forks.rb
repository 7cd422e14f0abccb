# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "../process/last_words"
require_relative "../process/orphans"
require_relative "../worker/control_channel"
require_relative "hooks"
require_relative "worker_handle"

module Fastrack
  # Has molds fork workers. The master waits for the answer, which an order to end the server cuts short.
  class WorkerForks
    # Seconds that a mold has for its answer. Generation 0 also has the time of its hooks.
    ANSWER_TIME = 5

    # Raised when a mold has not forked, and has logged the reason.
    Refused = Class.new(Error)

    # @return [Array<ControlChannel>] channels of the last worker, which a forked process may have inherited
    attr_reader :spawning

    # @param launcher [Launcher]
    # @param hooks [MasterHooks]
    # @yieldparam message [String] each message of a mold that is no answer
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
    def from_mold(mold, nr, entry, generation)
      order(mold, nr, entry, generation, ANSWER_TIME)
    rescue StandardError, TimeLimit::Unfinished => e
      Log.line("refork: #{mold.name} forks no worker: #{Error.reason(e)}", :error)
      give_up(mold, e)
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
    rescue TimeLimit::Unfinished, ControlChannel::NoAnswer, EOFError, SystemCallError => e
      give_up(first, e)
      raise
    end

    private

    # At the end of its channel the mold has ended or is about to. A killed mold's exit status tells the signal.
    def give_up(mold, error)
      error.is_a?(EOFError) || error.is_a?(SystemCallError) ? mold.stop : mold.kill("it has forked no worker")
    end

    # @param seconds [Numeric, nil] for the answer; nil: no limit
    # @return [WorkerHandle]
    # @raise [StandardError] when there is no worker, or none that is known; an unknown worker ends with its channel
    def order(mold, nr, entry, generation, seconds)
      ours, theirs = @spawning = ControlChannel.pair
      # A graceful stop closes the proxy's listeners while workers still serve.
      listeners = @launcher.open_listeners.reject(&:closed?)
      descriptors = [theirs.to_io, *[*listeners, *@launcher.queue&.fds].map { |one| copy(one) }]
      pid = @hooks.within(seconds ? seconds + 1 : 0, grace: TimeLimit::MOMENT) do
        mold.channel.order(nr, entry&.last, listeners.map(&:identity), descriptors, seconds) { |message| @other.call(message, mold) }
      end
      raise Refused, LastWords.of(mold.pid) || "it could not fork" unless pid.positive?

      Orphans.own(pid)
      handle_of(mold, nr, entry, generation, pid, ours)
    rescue StandardError, TimeLimit::Unfinished
      ours&.close
      raise
    ensure
      theirs&.close
    end

    # @param one [Listener, Integer]
    def copy(one) = IO.for_fd(one.is_a?(Integer) ? one : one.fileno, autoclose: false)

    def handle_of(mold, nr, entry, generation, pid, channel)
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      signal = @launcher.interactive? ? "TERM" : "QUIT"
      WorkerHandle.new(nr, pid, generation, channel, entry, now, signal).tap do |handle|
        handle.origin = mold
        handle.elsewhere unless @launcher.subreaper?
      end
    end
  end
end
