# frozen_string_literal: true

require_relative "../log"
require_relative "../memory/limit"

module Fastrack
  # `fastrack refork`: the worker that has served most becomes the mold, from which all workers are forked anew, one by one. So they share
  # what it has loaded and cached since it was forked.
  #
  #     retiring --its successor serves--> mold --all workers are its--> done
  #
  # Whatever goes wrong, workers are forked from the master, as if there were no mold.
  class Refork
    # @param launcher [Launcher]
    # @param workers [Workers]
    def initialize(launcher, workers)
      @launcher = launcher
      @workers = workers
    end

    # Begins, unless something forbids it, which it logs.
    #
    # @param obstacle [String, nil] what the master knows of that does
    # @return [Boolean] whether it has begun
    def begin(obstacle)
      obstacle ||= self.obstacle
      Log.line("refork: nothing happens: #{obstacle}") if obstacle
      return false if obstacle

      @candidate = candidate
      @requests = @candidate.requests
      @before = memory
      @candidate.retire
      true
    end

    # @param generation [Integer] the workers'
    # @return [Boolean, nil] whether it is time for a new generation
    def step(generation)
      # One that was promoted for nothing, or before.
      @workers.each { |handle| handle.stop if handle.mold? && ![@mold, @candidate].include?(handle) }
      if @candidate&.mold?
        @mold, @candidate = @candidate, nil
        @generation = generation + 1
        true
      elsif @generation && replaced?
        report
        @generation = nil
      end
    end

    # @param handle [WorkerHandle]
    # @param exited [WorkerExit]
    def exited(handle, exited)
      return unless [@candidate, @mold].include?(handle)

      # A candidate that has ended in order has said why.
      Log.line("refork: given up: #{handle.name} #{exited}; workers are forked from the master", :error) if @mold || exited.failed?
      drop
    end

    # From now on workers are forked from the master.
    def drop
      @candidate = @mold = @generation = nil
    end

    private

    def obstacle
      return "there is one in progress" if @candidate || @generation
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
    def memory
      ProcessMemory.format([Process.pid, *@workers.each.map(&:pid)].sum { |pid| ProcessMemory.of(pid).pss })
    end

    def report
      Log.line("refork: generation #{@generation} from worker #{@mold.nr} (pid #{@mold.pid}, #{Log.count(@requests, "request")}): " \
               "#{Log.count(@workers.size, "worker")} #{@before} -> #{memory}")
    end
  end
end
