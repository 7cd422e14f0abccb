# frozen_string_literal: true

module Fastrack
  # The workers that the master has, by slot. A worker that is stopping has left its slot to its successor, but is not
  # gone yet: that is how a successor starts before the other has ended.
  class WorkerPool
    # @return [Integer] slots. Workers of slots that are no longer there are #surplus
    attr_accessor :size

    # @param size [Integer]
    def initialize(size)
      @size = size
      @handles = []
    end

    def add(handle)
      @handles << handle
    end

    # @return [Integer, nil] the first slot without a worker that stays
    def free_slot
      taken = @handles.reject(&:stopping?).map(&:nr)
      (0...@size).find { |nr| !taken.include?(nr) }
    end

    # Whether one of the workers can be spared: all slots are served. So it can be only one at a time, until its
    # successor serves.
    def spare?
      @handles.count(&:serving?) >= @size
    end

    # @param generation [Integer]
    # @return [Boolean] whether each slot is served, by that generation
    def complete?(generation)
      @size.positive? && @handles.count { |handle| handle.serving? && handle.generation == generation } >= @size
    end

    # @return [Array<WorkerHandle>] those without a slot that have not been told to go
    def surplus
      staying.select { |handle| handle.nr >= @size }
    end

    # @return [WorkerHandle, nil] one that should go as soon as it can be spared
    def due_for_recycling(generation)
      serving = @handles.select(&:serving?)
      serving.find(&:overdue?) || serving.find { |handle| handle.generation < generation }
    end

    # @return [Array<WorkerHandle>] those that have not been told to go
    def staying
      @handles.reject(&:stopping?)
    end

    def empty?
      @handles.empty?
    end

    def each(&block)
      @handles.each(&block)
    end

    # Removes the workers that have ended.
    #
    # @yieldparam handle [WorkerHandle]
    # @yieldparam ending [WorkerEnding]
    def reap
      @handles.reject! do |handle|
        ending = handle.reap
        yield handle, ending if ending
        ending
      end
    end

    # @return [Array<ControlChannel>] those that are open
    def channels
      @handles.select(&:connected?).map(&:channel)
    end

    # Lets go of all of them, when the master fails.
    def abandon
      @handles.each(&:abandon)
      @handles.clear
    end
  end
end
