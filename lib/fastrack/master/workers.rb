# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "../process/last_words"
require_relative "../worker"
require_relative "../worker/control_channel"
require_relative "exit_events"
require_relative "lingering"
require_relative "profile"
require_relative "worker_forks"
require_relative "worker_handle"

module Fastrack
  # The master's workers, by slot. A stopping worker has already left its slot, so that the replacement starts before the worker has exited.
  class Workers
    include ExitEvents

    # The reason against a refork after the message ControlChannel::COPIES_CODE.
    YJIT = "with YJIT on Ruby 3.4 and later it saves nothing: a full GC writes to all compiled code"

    # Failed boots in a row, for each slot, after which a server that has never served gives up.
    ATTEMPTS = 10

    # Most processes beyond #size, besides the master: workers that are being replaced and have not exited.
    STOPPING = 2

    # @return [Integer] number of slots. Workers in slots beyond are #surplus
    attr_reader :size

    # @return [Scoreboard, Lingering, Profile]
    attr_reader :scoreboard, :lingering, :profile

    # @return [Float] monotonic seconds before which no worker is spawned: respawns are throttled
    attr_reader :not_before

    # @param launcher [Launcher]
    # @param hooks [MasterHooks]
    # @param signals [SignalQueue] gets orders of the app's to end the server
    def initialize(launcher, hooks, signals)
      @launcher = launcher
      @hooks = hooks
      @signals = signals
      @size = launcher.configuration.max_workers
      @handles = []
      @lingering = Lingering.new(self)
      @profile = Profile.new(self)
      @forks = WorkerForks.new(launcher, hooks) { |message, handle| receive(message, handle, false, false) }
      @not_before = 0.0
      # Failed boots since a worker was last ready, and whether a worker ever was.
      @failures = 0
      @proven = false
      @scoreboard = Scoreboard.new(launcher.queue)
      Fastrack.scoreboard = [@scoreboard, Process.pid]
    end

    # @param size [Integer] capped at the largest MaxWorkers
    def size=(size)
      @size = [size, Option::Types::MOST_WORKERS].min
    end

    # Spawns a worker into the first free slot, if a slot is free and a spawn is due.
    #
    # @raise [Error] when too many boots have failed and no worker was ever ready
    def fill_slot(generation)
      started = now
      nr = next_slot(generation)
      return if nr.nil? || started < @not_before || source.nil?

      fail_boot if !@proven && @failures >= ATTEMPTS * @size

      handle = spawn(nr, generation)
      wait_until(handle ? started + configuration.spawn_interval : now + configuration.err_respawn_interval)
      count_failure(generation, "worker #{nr} cannot be spawned: #{@spawn_failure}") unless handle
    end

    # @param generation [Integer]
    # @return [Integer, nil] the slot for the next spawn: a slot without a worker, else a slot with an old worker, which serves until its
    #   successor does
    def next_slot(generation) = free_slot || outdated_slot(generation)

    # @return [Integer, nil] the first slot without a worker
    def free_slot
      taken = staying.map(&:nr)
      (0...@size).find { |nr| !taken.include?(nr) }
    end

    # Whether a slot can be without its worker until the successor is ready: not while STOPPING workers stop, or no process forks.
    def spare? = @handles.count(&:serving?) >= @size && room? && !source.nil?

    # The process that forks workers instead of generation 0: nil, or a mold that has passed its trial (ReforkTrial).
    #
    # @param handle [WorkerHandle, nil]
    attr_writer :mold

    # @return [WorkerHandle, nil] the process that forks workers
    def source = mold || (@first if @first&.loaded? && @first.connected?)

    # @return [Integer] pid of the process whose memory the workers share
    def source_pid = source&.pid || Process.pid

    # @param handle [WorkerHandle] of a new process
    # @return [WorkerHandle]
    def add(handle) = handle.tap { @handles << handle }

    # @return [WorkerHandle, nil] nil also if the mold has ended
    def mold = (@mold if @mold&.mold? && @mold.connected?)

    # @return [String, nil] what has forbidden reforks: a place in the app's code, or the name of a worker; new code may permit them
    attr_accessor :forbidden_by

    # @return [WorkerHandle, nil] the first worker of a mold on trial
    attr_reader :trial

    # Replaces one worker by the mold's first worker. The new worker is of the next generation already, so that it stays if that generation
    # begins.
    #
    # @param mold [WorkerHandle]
    def try(mold)
      return if @handles.any? { |handle| handle.retiring == :trial }

      @untried = mold
      serving = @handles.select(&:serving?)
      (serving.find { |handle| handle.nr != mold.nr } || serving.first)&.retire(:trial)
    end

    # Ends the trial of a mold.
    #
    # @param passed [Boolean] whether the trial's worker may stay
    def end_trial(passed)
      dismiss(@trial) unless passed
      @untried = @trial = nil
      @handles.each { |handle| handle.retire(nil) }
    end

    # @param generation [Integer]
    # @return [Boolean] whether workers of that generation serve all slots: also without a slot, after TTOU or WINCH
    def complete?(generation)
      # A worker that TTOU has just made one too many fills no slot.
      @handles.count { |handle| handle.serving? && handle.nr < @size && handle.generation == generation && !handle.rejected? } >= @size
    end

    # @return [Array<WorkerHandle>] workers without a slot
    def surplus = staying.select { |handle| handle.nr >= @size }

    # Stops workers whose successors serve. If a worker can be spared, also stops one past its request limit, or without a channel. Stops an
    # outdated worker that boots, since a new configuration may boot, unless clients wait for that worker at a removed address.
    #
    # @param cause [Symbol] reason for the new generation: see Scoreboard#count_restart
    def recycle(generation, cause)
      @handles.each do |handle|
        next unless handle.booting? ? outdated?(handle, generation) && !handle.draining? : succeeded?(handle)

        handle.retiring == :mold ? handle.promote : handle.stop(cause)
      end
      return unless spare?

      serving = @handles.select(&:serving?)
      lost = serving.find { |handle| handle.disconnected?(now) }
      return replace(lost) if lost

      past_limit = serving.find { |handle| handle.past_limit && handle.retiring != :mold }
      past_limit&.stop(past_limit.past_limit)
    end

    # @return [Array<WorkerHandle>] workers that serve or boot, and are not stopping
    def staying = @handles.reject { |handle| handle.stopping? || handle.mold? }

    def empty? = @handles.empty?
    def each(&block) = @handles.each(&block)

    # @return [Array<WorkerHandle>] all processes but generation 0, which ends after them
    def all_but_first = @handles.reject(&:first?)

    # Ends hooks that run at the server's end.
    def end_hooks = @handles.each { |handle| handle.terminate if handle.first? && handle.stopping? }

    # @param generation [Integer]
    # @return [String, nil] why a worker of that generation has failed to boot, once
    def failure(generation)
      found, reason = @failure
      reason.tap { @failure = nil } if found == generation
    end

    # Has workers replaced whose code has failed.
    #
    # @param generation [Integer] the last one that stays
    def reject_newer(generation)
      staying.each { |handle| handle.reject if handle.generation > generation }
    end

    # Reopens log files in the master and in the workers.
    def reopen_logs
      LogFiles.reopen
      each(&:reopen_logs)
    end

    # Removes workers that have exited. After a failure the next spawn waits for ErrRespawnInterval. A killed worker is replaced at once,
    # unless it was spawned just before.
    #
    # @yieldparam handle [WorkerHandle] of each exited worker
    # @yieldparam exited [WorkerExit]
    def reap
      @handles.reject! do |handle|
        @profile.rest_of(handle) { |messages| receive_all(handle, messages) }
        exited = handle.reap(now) or next
        # A failed trial does not delay the next spawn, because the mold forks no other worker.
        tried = handle.equal?(@trial)
        handle.origin&.failed_boots += 1 if exited.failed? && !handle.ready?
        yield handle, exited
        next true if handle.first?

        note_exit(handle, exited)
        @launcher.queue&.worker_exited(handle.pid)
        log_exit(handle, exited) if exited.notable?
        failed(handle, exited) if exited.failed? && !tried
        true
      end
      send_exits
    end

    # Reads the workers' messages.
    #
    # @param ready [Array<ControlChannel>] the readable ones
    # @param drain [Boolean] whether new workers have to drain as well
    # @param may_exit [Boolean] whether workers may exit at their request limit without a replacement
    def read(ready, drain:, may_exit:)
      @handles.each { |handle| receive_all(handle, handle.messages, drain, may_exit) if ready.include?(handle.channel) }
    end

    def receive_all(handle, messages, drain = false, may_exit = false) # rubocop:disable Style/OptionalBooleanParameter -- as above
      messages.each { |message| receive(message, handle, drain, may_exit) }
    end

    # @return [Array<ControlChannel>] the open channels
    def channels = @handles.select(&:connected?).map(&:channel)

    # @return [Array<#close>] channels and pidfds that a forked process may have inherited
    def descriptors = channels | @forks.spawning | HeldChild.descriptors

    # Gives up all workers, when the master fails.
    def detach
      @handles.each(&:detach)
      @handles.clear
    end

    private

    def configuration = @launcher.configuration

    def receive(message, handle, drain, may_exit)
      case message.kind
      when ControlChannel::READY then ready(handle, drain)
      when ControlChannel::ENDING then handle.ending
      when ControlChannel::MOLD then handle.molded.then { handle.stop if may_exit }
      when ControlChannel::INTERRUPT_TAKEN, ControlChannel::INTERRUPT_LEFT then handle.interrupt_taken = message.kind == ControlChannel::INTERRUPT_TAKEN
      when ControlChannel::OUTGROWN, ControlChannel::TOO_LARGE then outgrown(handle, message.kind)
      when ControlChannel::LIMIT_REACHED then handle.answer(may_exit || handle.stopping? || (spare? && handle.retiring != :mold))
      when ControlChannel::LINGERING then @lingering.add(handle, *message.words, now)
      when ControlChannel::COPIES_CODE then @forbidden_by ||= YJIT
      when ControlChannel::FORBID then forbid(handle, *message.words)
      else receive_of_mold(handle, message)
      end
    end

    def receive_of_mold(handle, message)
      case message.kind
      when ControlChannel::STARTED then handle.note_plugins
      when *Profile::KINDS then @profile.receive(message, handle)
      when ControlChannel::MEMORY then handle.note_memory(*message.words)
      when ControlChannel::RESTART then @launcher.restart
      when ControlChannel::STOP then stop_for(handle, *message.words)
      when ControlChannel::REAPED
        pid, status = message.words
        @handles.find { |one| one.pid == pid && one.origin.equal?(handle) }&.reaped(status)
      end
    end

    # In development INT may be meant for a debugger, as the terminal's is. A mold that is told to finish gets TERM, too.
    def stop_for(handle, signal)
      @signals.push(signal == "INT" && configuration.development? ? "INT" : Master::STOP) unless handle.stopping?
    end

    def forbid(handle, place)
      handle.first? ? handle.forbids = place : @forbidden_by ||= handle.name
      @forbidden_by ||= place if handle.equal?(@first)
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # Stops the trial's worker at once if its predecessor is still there, because the next code's workers are of the same generation.
    def dismiss(trial)
      trial&.reject
      trial.stop(:refork) if trial&.connected? && @handles.any? { |handle| handle.retiring == :trial }
    end

    # @return [Integer, nil] slot of a worker that is to get a successor. One at a time, because the successor may fail to boot
    def outdated_slot(generation)
      return if !room? || staying.any?(&:booting?)

      staying.find { |handle| outdated?(handle, generation) && !succeeded?(handle) }&.nr
    end

    # Whether one more process may run.
    def room? = @handles.count { |handle| handle.worker? && !handle.lingering? } < @size + STOPPING

    # Whether the worker is to get a successor that serves before the worker stops.
    def outdated?(handle, generation) = !handle.retiring.nil? || handle.rejected? || handle.generation < generation

    # Whether a younger worker serves in the same slot.
    def succeeded?(handle)
      handle.serving? && @handles.any? { |other| other.serving? && other.nr == handle.nr && other.spawned_at > handle.spawned_at }
    end

    def replace(handle)
      # The line about a broken one is there.
      unless handle.broken?
        Log.line("#{handle.name} has no connection to the master any more: has the app closed all sockets? Replacing it")
      end
      handle.stop(:failure)
    end

    def ready(handle, drain)
      @proven = true
      @failures = 0
      handle.origin&.failed_boots = 0
      handle.ready(drain: drain)
    end

    # Called when a worker takes more than MaxMemoryPerChild.
    def outgrown(handle, kind)
      limit = configuration.max_memory_per_child or return
      text = "worker #{handle.nr} (pid #{handle.pid}) takes #{ProcessMemory.format((handle.memory&.pss).to_i)} of memory after " \
             "#{Log.count(handle.requests, "request")}; MaxMemoryPerChild is #{ProcessMemory.format(limit)}: "
      if kind == ControlChannel::OUTGROWN
        return if handle.past_limit

        handle.recycle(:memory)
        Log.line("#{text}recycling it")
      elsif @too_small != limit
        @too_small = limit
        Log.line("#{text}a new worker takes as much, so recycling would gain nothing")
      end
    end

    def failed(handle, exited)
      wait_until((exited.sudden? ? handle.spawned_at : now) + configuration.err_respawn_interval)
      # A rejected worker says nothing of newer code.
      return if handle.ready? || handle.rejected?

      words = LastWords.of(handle.pid)
      count_failure(handle.generation, "#{handle.name} #{exited.to_s.delete_suffix(" before it was ready")} before it was ready#{": #{words}" if words}")
    end

    # @param reason [String]
    def count_failure(generation, reason)
      @failures += 1
      @failure = [generation, reason]
      rounds, rest = @failures.divmod(ATTEMPTS)
      # A power of two, so that the line comes less and less often.
      return unless @proven && rest.zero? && (rounds & (rounds - 1)).zero?

      Log.line("the last #{@failures} workers failed to boot: #{@handles.count(&:serving?)} of #{@size} serve; trying again " \
               "every #{format("%g", configuration.err_respawn_interval)} s")
    end

    # Logs an exit. Exits of workers that do not boot come again and again, and are logged as repeated failures.
    def log_exit(handle, exited)
      text = "#{handle.name} #{exited}"
      return Log.line(text, exited.failed? ? :error : :info) if handle.ready? || !exited.failed?

      Log.repeated([:exit, exited.to_s.gsub(/\d+\.\d+ s/, "")], :error) { text }
    end

    def fail_boot
      each { |handle| handle.kill("no worker ever was ready") }
      raise Error, "the last #{@failures} workers failed to boot, and none ever was ready: the server ends"
    end

    def wait_until(time) = @not_before = [@not_before, time].max

    # @return [WorkerHandle, nil] nil on failure, which is logged
    def spawn(nr, generation)
      slot = @scoreboard.reserve
      untried = @untried if @handles.any? { |one| one.nr == nr && one.retiring == :trial }
      entry = slot && [@scoreboard, slot]
      @trial = handle = @forks.from_mold(untried, nr, entry, generation + 1) if untried
      handle ||= (mold && @forks.from_mold(mold, nr, entry, generation)) || @forks.from_first(first, nr, entry, generation)
      # The worker waits for KNOWN, so no code of the app runs before the master has the handle.
      add(handle).tap(&:known)
    rescue Exception => e # rubocop:disable Lint/RescueException -- no hook ends the server, not by `exit` either
      # A later try may succeed: memory and pids become free, or a database of a hook comes back.
      @scoreboard.release(slot) if slot && handle.nil?
      Log.exception("cannot spawn worker #{nr}", e) unless e.is_a?(WorkerForks::Refused)
      @spawn_failure = Error.reason(e)
      handle
    end
  end
end
