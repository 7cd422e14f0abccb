# frozen_string_literal: true

require_relative "../log"
require_relative "../process/last_words"
require_relative "../process/memory"

module Fastrack
  # Decides when to refork (`refork true`): once workers have run most of the app's code, and their memory grows no more.
  class AutoRefork
    # Requests for each worker before the first refork, and the factor from one refork to the next: less and less code runs for the first
    # time. A worker that ends meanwhile, as at MaxRequestPerChild, changes nothing: the mold also forks the successor.
    FIRST_REQUESTS = 50
    REQUESTS_FACTOR = 4

    # Most reforks of a server.
    MOST_REFORKS = 6

    # Seconds between two checks of the number of requests, and the growth of that number from one check of the memory to the next. Checks
    # of the memory are costly, so they become fewer and fewer.
    CHECK_INTERVAL = 2
    REQUESTS_GROWTH = 1.25

    # OWN_GROWTH: the workers' own memory counts as settled once it grows by less than this share from one check to the next. OWN_SHARE: a refork is
    # worth its cost from this share of own memory in the whole.
    OWN_GROWTH = 0.05
    OWN_SHARE = 0.1

    # Share of the whole memory that a refork must have saved, or else no other one follows.
    LEAST_SAVING = 0.05

    # @return [Float, nil] monotonic seconds when #due? has something to do
    attr_reader :due_at

    # @param workers [Workers]
    def initialize(workers)
      @workers = workers
      @generation = 0
      @due_at = 0.0
      @start = 0
      @target = FIRST_REQUESTS
    end

    # @param now [Float] monotonic seconds
    # @return [Boolean] whether a refork is due
    def due?(now)
      return false if @due_at.nil? || now < @due_at

      @due_at = now + CHECK_INTERVAL
      served = answered - @start
      return false if served < @target * @workers.size

      @target = served.fdiv(@workers.size) * REQUESTS_GROWTH
      before, @own = @own, own
      !before.nil? && @own < before * (1 + OWN_GROWTH) && worth?
    end

    # Called when a refork has begun, by this class or by an order.
    def begun
      @generation += 1
      @whole = whole
      @own = nil
      @start = answered
      @target = FIRST_REQUESTS * (REQUESTS_FACTOR**@generation)
      @due_at = nil if @generation == MOST_REFORKS
    end

    # The refork has come to nothing, for a reason other than memory.
    def undone
      @generation -= 1
      @target = FIRST_REQUESTS * (REQUESTS_FACTOR**@generation)
      @whole = nil
      @due_at = 0.0
    end

    private

    def answered = @workers.scoreboard.totals[:requests]

    # Bytes of the workers' own pages.
    def own = @workers.each.select(&:serving?).filter_map(&:memory).sum(&:private)

    # PSS of all processes, per worker, because the number of workers may change.
    def whole
      ProcessMemory.pss(@workers.each.reject(&:lingering?)) / [@workers.size, 1].max
    end

    def worth?
      size = whole
      return @own > size * @workers.size * OWN_SHARE if @whole.nil? || size < @whole * (1 - LEAST_SAVING)

      @due_at = nil
      Log.line("refork: no more by itself: the last one has saved #{((1 - size.fdiv(@whole)) * 100).round} % of the memory")
      false
    end
  end

  # The trial of a mold, by its first worker, before the mold forks others. The trial shows whether the worker's hooks end, whether the
  # worker serves, and whether it has less memory of its own than the workers from before.
  class ReforkTrial
    # The trial is over when the worker has answered ENOUGH_REQUESTS. It is also over, while the worker is idle, when the others have answered
    # OTHERS_REQUESTS, or when no worker has answered any for QUIET_TIME seconds.
    ENOUGH_REQUESTS = 10
    OTHERS_REQUESTS = 50
    QUIET_TIME = 5

    # Seconds between two checks.
    CHECK_INTERVAL = 0.25

    # @return [WorkerHandle]
    attr_reader :mold

    # @return [Float] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param workers [Workers]
    # @param mold [WorkerHandle]
    def initialize(workers, mold)
      @workers = workers
      @mold = mold
      @due_at = 0.0
    end

    # @param now [Float] monotonic seconds
    # @return [String, nil] nil while the trial lasts; then the objection to the mold, empty if there is none
    def step(now)
      @due_at = now + CHECK_INTERVAL
      return "" if @passed

      trial = @workers.trial or return @workers.try(@mold).then { nil }
      return unless trial.serving?

      note_requests(now)
      objection(trial) if over?(trial, now)
    end

    # The worker has answered as many requests as its limit allows.
    def pass
      @passed = true
    end

    private

    def note_requests(now)
      answered = @workers.scoreboard.totals[:requests]
      @before ||= answered
      @quiet_since = now unless answered == @answered
      @answered = answered
    end

    def over?(trial, now)
      return true if trial.requests >= ENOUGH_REQUESTS

      # A busy worker may be stuck in its request.
      !trial.busy? && (@answered - @before - trial.requests >= OTHERS_REQUESTS || now - @quiet_since >= QUIET_TIME)
    end

    # Compares only workers that have served as much as the trial's, because a worker that has served less has less memory. The worker that
    # has served least is usually the one in the mold's slot.
    def objection(trial)
      others = @workers.each.select { |handle| handle.serving? && handle != trial && handle.requests >= [trial.requests, ENOUGH_REQUESTS].max }
      usual = others.min_by(&:requests) or return ""
      own, its = [trial, usual].map { |handle| handle.memory&.private }
      # A worker that has just ended has no figures.
      return "" if own.nil? || its.nil? || own < its

      "#{trial.name}, the mold's first, has #{ProcessMemory.format(own)} of its own after #{Log.count(trial.requests, "request")}; " \
        "#{usual.name} has #{ProcessMemory.format(its)} after #{usual.requests}"
    end
  end

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
    end

    # Begins a refork. If something forbids it, logs the reason.
    #
    # @param obstacle [String, nil] a reason of the master's against it
    # @param auto [Boolean] whether the server decided by itself; then the log has a reason only once
    # @return [Boolean] whether it has begun
    def begin(obstacle, auto: false)
      @orders.begin("URG") unless auto
      obstacle ||= self.obstacle
      Log.line("refork: nothing happens: #{obstacle}") unless obstacle.nil? || (auto && obstacle == @told)
      @told = obstacle
      @orders.refused("URG", obstacle) if obstacle && !auto
      return false if obstacle

      @auto&.begun
      @candidate = candidate
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
      begun? ? @trial&.due_at : [@auto&.due_at, (@look_at if @mold)].compact.min
    end

    # @param generation [Integer] generation of the workers
    # @param now [Float] monotonic seconds
    # @param kept [Array<WorkerHandle>] molds that may be needed again
    # @return [Boolean] whether a new generation is to begin
    def step(generation, now, kept = [])
      give_up_mold(forbidden, :info) if forbidden && (begun? || @mold)
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

    # A candidate that has ended without a reason of its own was ended from outside: another one may succeed later.
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

    def obstacle
      return forbidden if forbidden
      return "there is one in progress" if begun?
      return ProcessMemory::UNKNOWN unless ProcessMemory.known?
      return "each worker loads the app (PreloadApp)" unless @launcher.loaded? || @launcher.configuration.preload_app
      return "it takes two workers at least" if @workers.size < 2
      return "no worker has served a request yet" unless @workers.each.any? { |handle| handle.serving? && handle.requests.positive? }
      return "all workers that have served have hijacked connections or streams, which a fork would have, too" unless candidate

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
      @pause = CHECK_INTERVALS.begin
      @look_at = now + @pause
    end

    # The mold costs its own pages. Each worker saves the rest of the memory that the mold had for itself as a worker.
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
