# frozen_string_literal: true

require_relative "../log"
require_relative "../process/last_words"
require_relative "../process/memory"

module Fastrack
  # When to refork by itself (`refork true`): once workers have run what the app's code mostly runs, and have taken the memory for it.
  class AutoRefork
    # Requests for each worker before the first refork, and the factor from one refork to the next: less and less code
    # runs for the first time. A worker may end between, as at MaxRequestPerChild: its successor is also of the mold.
    FIRST = 50
    FACTOR = 4

    # Generations.
    MOST = 6

    # Seconds between two looks at the number of requests, and what that has to have grown by from one look at the memory to the next:
    # those are dear, so that there are fewer and fewer.
    INTERVAL = 2
    MORE = 1.25

    # The workers' own memory, which is what has grown since their fork, grows no more when it has by less than this from one look to the
    # next. As a part of the whole, it is worth sharing from that on.
    GROWTH = 0.05
    SHARE = 0.1

    # What a generation has to save of the whole, for there to be another one.
    GAIN = 0.05

    # @return [Float, nil] monotonic seconds when #due? has something to do
    attr_reader :due_at

    # @param workers [Workers]
    def initialize(workers)
      @workers = workers
      @generation = 0
      @due_at = 0.0
      @start = 0
      @target = FIRST
    end

    # @param now [Float] monotonic seconds
    # @return [Boolean] whether it is time
    def due?(now)
      return false if @due_at.nil? || now < @due_at

      @due_at = now + INTERVAL
      served = answered - @start
      return false if served < @target * @workers.size

      @target = served.fdiv(@workers.size) * MORE
      before, @own = @own, own
      !before.nil? && @own < before * (1 + GROWTH) && worth?
    end

    # A refork has begun, by itself or not.
    def begun
      @generation += 1
      @whole = whole
      @own = nil
      @start = answered
      @target = FIRST * (FACTOR**@generation)
      @due_at = nil if @generation == MOST
    end

    private

    def answered = @workers.scoreboard.totals[:requests]

    # Bytes that workers have each for itself.
    def own = @workers.each.select(&:serving?).filter_map(&:memory).sum(&:private)

    # What all processes take, for each worker: their number may change.
    def whole
      ProcessMemory.pss(@workers.each) / [@workers.size, 1].max
    end

    def worth?
      size = whole
      return @own > size * @workers.size * SHARE if @whole.nil? || size < @whole * (1 - GAIN)

      @due_at = nil
      Log.line("refork: that was the last one: it has saved #{((1 - size.fdiv(@whole)) * 100).round} % of the memory")
      false
    end
  end

  # The first worker of a mold, before any others are forked from it: whether its hooks end, whether it serves, and whether it has less
  # memory of its own than the others, which come from where workers came from so far.
  class ReforkTrial
    # It has served for long enough when it has answered REQUESTS; or, while it has none, when the others have answered OTHERS, or
    # nobody any for QUIET seconds.
    REQUESTS = 10
    OTHERS = 50
    QUIET = 5

    # Seconds between two looks.
    INTERVAL = 0.25

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
    # @return [String, nil] nil while it lasts, then what there is to say against the mold: nothing if that is empty
    def step(now)
      @due_at = now + INTERVAL
      return "" if @passed

      trial = @workers.trial or return @workers.try(@mold).then { nil }
      return unless trial.serving?

      note_requests(now)
      objection(trial) if over?(trial, now)
    end

    # The worker has answered all that it was to.
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
      return true if trial.requests >= REQUESTS

      # It may be stuck in one.
      !trial.busy? && (@answered - @before - trial.requests >= OTHERS || now - @quiet_since >= QUIET)
    end

    # One that has served less would have less in any case. As a rule the one that has served least is that in the mold's place.
    def objection(trial)
      others = @workers.each.select { |handle| handle.serving? && handle != trial && handle.requests >= [trial.requests, REQUESTS].max }
      usual = others.min_by(&:requests) or return ""
      own, its = [trial, usual].map { |handle| handle.memory&.private }
      # One that has just ended has none.
      return "" if own.nil? || its.nil? || own < its

      "#{trial.name}, the mold's first, has #{ProcessMemory.format(own)} of its own after #{Log.count(trial.requests, "request")}; " \
        "#{usual.name} has #{ProcessMemory.format(its)} after #{usual.requests}"
    end
  end

  # `fastrack refork`: the worker that has served most becomes the mold, from which all workers are forked anew, one by one. So they share
  # what it has loaded and cached since it was forked.
  #
  #     retiring --its successor serves--> mold --its first worker has served a while--> replacing --all workers are its--> done
  #
  # Whatever goes wrong, workers are forked from the master, or from the mold of before. So they are when they have come to share next to
  # nothing with the mold any more, as after a collection that writes to all objects:
  #
  #     done --the mold has for itself what it had as a worker--> ending --all workers are the master's--> (none)
  class Refork
    # Seconds from a refork to the first look at what the mold has for itself, and from one look to the next, twice as long each time.
    LOOKS = (4..60).freeze

    # What the mold has for itself, as a part of the whole, is worth a line from that on.
    SHARE = 0.1

    # @param launcher [Launcher]
    # @param workers [Workers]
    # @param orders [Orders] gets what comes of URG
    def initialize(launcher, workers, orders)
      @launcher = launcher
      @workers = workers
      @orders = orders
    end

    # Begins, unless something forbids it, which it logs.
    #
    # @param obstacle [String, nil] what the master knows of that does
    # @param auto [Boolean] whether nobody has asked for it: then the line comes once
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

    # @return [Boolean] whether it has begun, and is not done
    def begun?
      !(@candidate || @trial || @generation).nil?
    end

    # Whether it is to begin by itself. A mold that has failed would fail again: not before a HUP.
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

    # @param generation [Integer] the workers'
    # @param now [Float] monotonic seconds
    # @return [Boolean] whether it is time for a new generation
    def step(generation, now)
      obey(forbidden) if forbidden && (begun? || @mold)
      # One that was promoted for nothing, or before.
      @workers.each { |handle| handle.stop if handle.mold? && ![@workers.mold, @candidate, @trial&.mold].include?(handle) }
      @trial, @candidate = ReforkTrial.new(@workers, @candidate), nil if @candidate&.mold?
      report(now) if @generation && replaced?
      return true if !begun? && @mold && lost?(now) && let_go(generation)

      objection = @trial&.step(now)
      objection.nil? ? false : judge(objection, generation)
    end

    # @param handle [WorkerHandle]
    # @param exited [WorkerExit]
    def exited(handle, exited)
      if @trial && handle.equal?(@workers.trial) then trial_exited(handle, exited)
      elsif [@candidate, @trial&.mold].include?(handle)
        # A candidate that has ended in order has said why.
        @trial || exited.failed? ? give_up("#{handle.name} #{exited}; workers are forked as before") : give_up(nil, LastWords.of(handle.pid))
      elsif handle.equal?(@mold)
        Log.line("refork: given up: #{handle.name} #{exited}; workers are forked from the master", :error)
        drop("#{handle.name} #{exited}")
      end
    end

    # From now on workers are forked from the master.
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

      # A mold's worker has what that had as well.
      @learned = @own + (@mold ? @learned : 0)
      @workers.mold = @mold = @trial.mold
      @workers.end_trial(true)
      @trial = nil
      @generation = generation + 1
      true
    end

    # The mold that was there before stays, and so do its workers.
    #
    # @param reason [String, nil] for the log
    # @param words [String, nil] what the worker itself has logged
    # @return [false]
    def give_up(reason, words = nil)
      Log.line("refork: given up: #{reason}", :error) if reason
      @orders.failed("URG", reason || words || "the worker that was to be the mold has ended")
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

    def obey(reason)
      Log.line("refork: given up: #{reason}; workers are forked from the master")
      drop(reason)
    end

    def trial_exited(handle, exited)
      if exited.failed? then give_up("#{handle.name}, the mold's first, #{exited}; workers are forked as before")
      elsif handle.cause == :request_limit then @trial.pass
      else
        # It was told to stop: another one is to try.
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
      return "each worker loads the app (PreloadApp)" unless @launcher.preloaded?
      return "it takes two workers at least" if @workers.size < 2
      return "no worker has served a request yet" unless @workers.each.any? { |handle| handle.serving? && handle.requests.positive? }
      return "all workers that have served have hijacked connections, which a fork would have, too" unless candidate

      "this system gives a process no orphans (PR_SET_CHILD_SUBREAPER)" unless Fastrack.adopt_orphans
    end

    # @return [WorkerHandle, nil]
    def candidate
      @workers.each.select { |handle| handle.serving? && handle.requests.positive? && !handle.hijacked? }.max_by(&:requests)
    end

    def replaced?
      @workers.complete?(@generation) && @workers.each.all? { |handle| handle.mold? || handle.generation >= @generation }
    end

    # What all processes take.
    def memory = ProcessMemory.format(ProcessMemory.pss(@workers.each))

    def report(now)
      from = @mold ? "worker #{@mold.nr} (pid #{@mold.pid}, #{Log.count(@requests, "request")})" : "the master"
      Log.line("refork: generation #{@generation} from #{from}: #{Log.count(@workers.size, "worker")} #{@before} -> #{memory}")
      @orders.done("URG") if @mold
      @generation = nil
      @pause = LOOKS.begin
      @look_at = now + @pause
    end

    # What the mold has for itself is what it costs, and the rest of what it had of its own as a worker is what each of its workers saves.
    def lost?(now)
      return false if now < @look_at

      @pause = [@pause * 2, LOOKS.end].min
      @look_at = now + @pause
      @cost = ProcessMemory.of(@mold.pid)&.private.to_i
      @cost > (@learned - @cost) * @workers.size && @cost > ProcessMemory.pss(@workers.each) * SHARE
    end

    # @return [true]
    def let_go(generation)
      Log.line("refork: given up: #{@mold.name} has #{ProcessMemory.format(@cost)} for itself, and had #{ProcessMemory.format(@learned)} as a worker: " \
               "its workers share next to nothing of that any more; workers are forked from the master", :error)
      @before = memory
      drop
      @auto = nil
      @generation = generation + 1
      true
    end
  end
end
