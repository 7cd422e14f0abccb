# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "auto_workers"
require_relative "child_limit"
require_relative "guard"
require_relative "limit"
require_relative "process_memory"

module Fastrack
  # What the master does for workers that fit into the memory and use the CPUs: see MemoryGuard and AutoWorkers.
  class Keepers
    # @return [Float, nil] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param workers [Workers]
    def initialize(workers)
      @workers = workers
      @keepers = []
    end

    # Before the first worker of MaxWorkers=auto is spawned.
    def start(configuration)
      return unless ProcessMemory.known?

      size, figures = guarded { AutoWorkers.start(limit(configuration), @workers.size) }
      return if size.nil? || size == @workers.size

      @workers.size = size
      Log.line("workers auto: starting with #{size} (#{figures})")
    end

    # All workers serve.
    def begin(configuration)
      return if configuration.equal?(@configuration)

      @configuration = configuration
      @keepers = guarded { create(configuration) } || []
      @due_at = (0.0 if @keepers.any?)
    end

    # @param configuration [Configuration] that a HUP may have changed
    def step(now, configuration)
      self.begin(configuration)
      @keepers.each { |keeper| guarded { keeper.step(now) } if now >= keeper.due_at }
      @due_at = @keepers.map(&:due_at).min
    end

    private

    # A look at /proc may fail, as when no descriptor is free, and the next one may not. None ends the server.
    def guarded
      yield
    rescue StandardError, NoMemoryError => e
      reason = Error.reason(e)
      Log.line("cannot look at the memory: #{reason}", :error) unless reason == @reason
      @reason = reason
      nil
    end

    def create(configuration)
      unless ProcessMemory.known?
        Log.line("#{configuration.source(:MaxMemory)} has no effect: this system has no /proc") if configuration.max_memory
        return []
      end

      limit = self.limit(configuration) or return []
      auto = configuration.auto_workers?
      guard = MemoryGuard.new(@workers, limit, auto: auto)
      auto ? [guard, AutoWorkers.new(@workers, guard)] : [guard]
    end

    # @return [MemoryLimit, nil]
    def limit(configuration)
      MemoryLimit.find(configuration) || (MemoryLimit::MachineLimit.new if configuration.auto_workers?)
    end
  end
end
