# frozen_string_literal: true

require_relative "../log"
require_relative "../process/last_words"
require_relative "../process/memory"
require_relative "auto_refork"
require_relative "refork_saving"
require_relative "refork_trial"

module Fastrack
  # `fastrack refork`: the worker that has served most becomes the mold. All workers are forked from the mold, one by one. So workers share
  # all that the mold has loaded and cached while it served.
  #
  #     retiring --its successor serves--> mold --its first worker has served a while--> replacing --all workers are its--> done
  #
  # After any failure workers are forked from generation 0, or from the previous mold. The same happens when workers share next to nothing
  # with the mold any more, as after a collection that writes to all objects:
  #
  #     done --the mold has for itself what it had as a worker--> ending --all workers are generation 0's--> (none)
  class Refork
    # Seconds from a refork to the first check of the mold's own memory. Each next check comes after twice as long.
    CHECK_INTERVALS = (4..60).freeze

    # Share of the mold's own memory in the whole from which the mold may be given up.
    GIVE_UP_SHARE = 0.1

    # Workers of a mold that may fail to boot, one after the other: the app or the mold may be the reason.
    FAILED_BOOTS = 2

    # @param launcher [Launcher]
    # @param workers [Workers]
    # @param orders [Orders] notes the outcome of URG
    # @yield when all workers are forked from a mold
    def initialize(launcher, workers, orders, &done)
      @launcher = launcher
      @workers = workers
      @orders = orders
      @done = done
      @saving = ReforkSaving.new(workers)
    end

    # Begins a refork. If something forbids it, logs the reason.
    #
    # @param obstacle [String, nil] a reason of the master's against it
    # @param auto [Boolean] whether the server decided by itself; then the log has a reason only once
    # @return [Boolean] whether it has begun
    def begin(obstacle, auto: false)
      @orders.begin("URG") unless auto
      # Looked for once: clients may come at any moment.
      chosen = candidate
      obstacle ||= self.obstacle(chosen)
      Log.line("refork: nothing happens: #{obstacle}") unless obstacle.nil? || (auto && obstacle == @told)
      @told = obstacle
      @orders.refused("URG", obstacle) if obstacle && !auto
      return false if obstacle

      @auto&.begun
      @candidate = chosen
      @requests = @candidate.requests
      @before = memory
      @own = @candidate.memory&.private.to_i
      @candidate.retire(:mold)
      true
    end

    # @return [Boolean] whether a refork has begun and is not done
    def begun? = !(@candidate || @trial || @generation).nil?

    # Whether a refork is to begin by itself. After a failure none does before a HUP, because another mold would fail, too.
    #
    # @param now [Float] monotonic seconds
    # @param configuration [Configuration] that a HUP may have changed
    def due?(now, configuration)
      watch(configuration) unless configuration.equal?(@configuration)
      !@auto.nil? && !begun? && @auto.due?(now)
    end

    # @return [Float, nil] monotonic seconds when #step or #due? has something to do
    def due_at
      begun? ? @trial&.due_at : [@auto&.due_at, @mold ? @look_at : (@saving.due_at unless @auto || hopeless)].compact.min
    end

    # @return [Integer, nil] bytes that a refork would save; nil if unknown, after a refork, and where no refork is possible
    def saving = (@saving.bytes unless begun? || @mold || hopeless)

    # @param generation [Integer] generation of the workers
    # @param now [Float] monotonic seconds
    # @param kept [Array<WorkerHandle>] molds that may be needed again
    # @return [Boolean] whether a new generation is to begin
    def step(generation, now, kept = [])
      give_up_mold(forbidden, :info) if forbidden && (begun? || @mold)
      @saving.step(now) unless @auto || begun? || @mold || hopeless
      # Stops molds of failed or earlier reforks.
      kept = [*kept, @workers.mold, @candidate, @trial&.mold]
      @workers.all_but_first.each { |handle| handle.stop if handle.mold? && !kept.include?(handle) }
      @trial, @candidate = ReforkTrial.new(@workers, @candidate), nil if @candidate&.mold?
      candidate_lost(@candidate, "has hijacked connections or streams, which a fork would have, too") if @candidate&.lingering?
      report(now) if @generation && replaced?
      return true if !begun? && @mold && lost?(now) && drop_mold(generation)

      objection = @trial&.step(now)
      objection.nil? ? false : judge(objection, generation)
    end

    # @param handle [WorkerHandle]
    # @param exited [WorkerExit]
    def exited(handle, exited)
      if @trial && handle.equal?(@workers.trial) then trial_exited(handle, exited)
      elsif [@candidate, @trial&.mold].include?(handle) then candidate_lost(handle, exited)
      elsif handle.equal?(@mold) then give_up_mold("#{handle.name} #{exited}")
      elsif @mold&.failed_boots == FAILED_BOOTS
        give_up_mold("the last #{FAILED_BOOTS} workers of #{@mold.name} failed to boot")
      end
    end

    # Gives up the mold. Generation 0 forks workers from now on.
    #
    # @param reason [String]
    def drop(reason = "the workers are being replaced")
      @orders.failed("URG", reason)
      @workers.end_trial(false)
      @workers.mold = @candidate = @trial = @mold = @generation = nil
      @saving.restart
    end

    # @param change [Integer] 1: HUP replaces the workers; -1: HUP has failed, and the mold from before it forks workers again; 0: neither
    # @param now [Float] monotonic seconds
    def renewed(change, now)
      return drop if change.positive?
      return if change.zero?

      @mold = @workers.mold
      look_again(now)
    end

    private

    def judge(objection, generation)
      return give_up("#{objection}; workers are forked as before") unless objection.empty?

      # A mold from a mold also has the memory that the earlier mold had learned.
      @learned = @own + (@mold ? @learned : 0)
      @workers.mold = @mold = @trial.mold
      @workers.end_trial(true)
      @trial = nil
      @generation = generation + 1
      true
    end

    # Gives up this refork. The previous mold and its workers stay.
    #
    # @param reason [String, nil] for the log
    # @param words [String, nil] reason that the worker itself has logged
    # @return [false]
    def give_up(reason, words = nil)
      Log.line("refork: given up: #{reason}", :error) if reason
      @orders.failed("URG", reason || words)
      @workers.end_trial(false)
      @candidate = @trial = @auto = nil
      false
    end

    def watch(configuration)
      @configuration = configuration
      @auto = nil
      return unless configuration.refork
      return Log.line("#{configuration.source(:Refork)} has no effect: #{ProcessMemory::UNKNOWN}") unless ProcessMemory.known?

      @auto = AutoRefork.new(@workers)
    end

    # Called when the candidate has ended. If the candidate gave no reason, something outside ended it, and another one may succeed later.
    def candidate_lost(handle, exited)
      text = "#{handle.name} #{exited}; workers are forked as before"
      words = LastWords.of(handle.pid)
      return give_up(exited.failed? ? text : nil, words) if words

      auto = @auto
      give_up(text)
      @auto = auto&.tap(&:undone)
    end

    def give_up_mold(reason, level = :error)
      Log.line("refork: given up: #{reason}; workers are forked from generation 0", level)
      drop(reason)
    end

    def trial_exited(handle, exited)
      if exited.failed? then give_up("#{handle.name}, the mold's first, #{exited}; workers are forked as before")
      elsif handle.cause == :request_limit then @trial.pass
      else
        # The worker was told to stop, so another one repeats the trial.
        @workers.end_trial(false)
      end
    end

    # @return [String, nil]
    def forbidden
      place = Fastrack.refork_forbidden || @workers.forbidden_by
      "the app forbids it (#{place})" if place
    end

    # @param candidate [WorkerHandle, nil]
    # @return [String, nil]
    def obstacle(candidate)
      return "there is one in progress" if begun?
      return hopeless if hopeless
      return "no worker has served a request yet" unless @workers.each.any? { |handle| handle.serving? && handle.requests.positive? }

      "all workers that have served have hijacked connections or streams, which a fork would have, too" unless candidate
    end

    # @return [String, nil] a reason against all reforks
    def hopeless
      return forbidden if forbidden
      return ProcessMemory::UNKNOWN unless ProcessMemory.known?
      return "each worker loads the app (PreloadApp)" unless @launcher.loaded? || @launcher.configuration.preload_app
      return "it takes two workers at least" if @workers.size < 2

      "this system gives a process no orphans (PR_SET_CHILD_SUBREAPER)" unless @launcher.subreaper?
    end

    # @return [WorkerHandle, nil]
    def candidate
      @workers.each.select { |handle| handle.serving? && handle.requests.positive? && !handle.keeps_clients? }.max_by(&:requests)
    end

    def replaced?
      @workers.complete?(@generation) && @workers.each.all? { |handle| handle.mold? || handle.lingering? || handle.generation >= @generation }
    end

    # PSS of all processes, for the log.
    def memory = ProcessMemory.format(ProcessMemory.pss(@workers.each.reject(&:lingering?)))

    def report(now)
      from = @mold ? "worker #{@mold.nr} (pid #{@mold.pid}, #{Log.count(@requests, "request")})" : "generation 0"
      Log.line("refork: generation #{@generation} from #{from}: #{Log.count(@workers.size, "worker")} #{@before} -> #{memory}")
      [@orders.done("URG"), @done.call] if @mold
      @generation = nil
      look_again(now)
    end

    def look_again(now)
      @pause = CHECK_INTERVALS.begin
      @look_at = now + @pause
    end

    # Whether workers share next to nothing with the mold any more. The mold costs its own pages. Each worker saves the rest of the memory
    # that the mold had for itself as a worker.
    def lost?(now)
      return false if now < @look_at

      @pause = [@pause * 2, CHECK_INTERVALS.end].min
      @look_at = now + @pause
      @cost = ProcessMemory.of(@mold.pid)&.private.to_i
      @cost > (@learned - @cost) * @workers.size && @cost > ProcessMemory.pss(@workers.each) * GIVE_UP_SHARE
    end

    # @return [true]
    def drop_mold(generation)
      Log.line("refork: given up: #{@mold.name} has #{ProcessMemory.format(@cost)} of its own, and had #{ProcessMemory.format(@learned)} as a worker, " \
               "so its workers share next to nothing; workers are forked from generation 0", :error)
      @before = memory
      drop
      @auto = nil
      @generation = generation + 1
      true
    end
  end
end
