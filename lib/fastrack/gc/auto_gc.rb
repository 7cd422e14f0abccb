# frozen_string_literal: true

require_relative "figures"
require_relative "young_heap"

module Fastrack
  # OobGC=auto: collects garbage between two requests, shortly before Ruby would in one of the next, and only while that keeps
  # no client waiting.
  #
  # Ruby collects when the room for young objects is used up, or so much was allocated by malloc. When only a few more requests
  # fit in, this waits for a moment in which nobody waits, no other worker collects, and another one is idle: who comes
  # meanwhile is served there. Before the last of those requests the others may be busy, and are left a client or two each, who would
  # also wait for the collection here. A full mark that Ruby says is due, and would make at its next collection, is made as soon as
  # that holds: it takes far longer than other collections, and in a request somebody surely waits. Where there is no such moment,
  # under full load, Ruby collects as it would without this, and what it leaves unfinished is finished here.
  #
  # Ruby 3.4 lets the heap have more free slots than earlier ones: it collects rarely, and each time there is much to mark and to
  # sweep. A full mark it makes in steps, and it sweeps bit by bit, for the objects that requests make. So do collections between
  # requests: in one go they would keep clients waiting for longer. Here it makes steps, by objects, until somebody waits, or there is
  # no more room for such objects. Then it is the requests that sweep; but the rest, of which Ruby makes one bit, is swept here.
  #
  # The fewer requests it waits for, the rarer are collections; the more, the surer is such a moment. So it learns: from
  # each collection that Ruby makes in a request, to begin earlier, and from its own ones to begin later.
  #
  # It costs a method call per response, and now and then a look at the heap.
  class AutoGC
    # For how many requests it waits for a good moment: at least, which is before the very next one, so that then the others may be busy,
    # and are left some clients; and at most. Each collection in a request makes it one more, each of its own takes its share off.
    MARGINS = (1.5..12.0).freeze
    LATER = 0.95

    # It collects nothing in a heap that is less full: each collection then comes too often.
    FULL = 0.65

    # What is left of how much fuller a request makes the heap, when the next ones make it less so.
    DECAY = 0.9

    SAYS_DUE = GCFigures.tells?(:need_major_by) { GC.latest_gc_info }

    # Whether there is so much to mark and to sweep that it is not done at once.
    IN_STEPS = RUBY_VERSION >= "3.4"
    HOW = (IN_STEPS ? { immediate_mark: false, immediate_sweep: false } : {}).freeze

    # The most steps after a response.
    MOST_STEPS = 100

    # Seconds of a step, after which to see whether somebody waits.
    STEP = 0.001

    # Objects for which Ruby marks or sweeps a bit (gc/default/default.c). It takes as large ones as it needs to be ready before the free slots
    # are used up that it has kept for them.
    OBJECTS = 500

    # Nanoseconds of sweeping that are left when it sweeps the rest.
    REST_OF_SWEEP = 12_000_000

    # Most responses from one look to the next.
    LONGEST = 64

    # Responses after each of which a full mark that is due is tried.
    TRIES = 64

    # @yieldreturn [Engine]
    def initialize(&engine)
      @engine = engine
      @heap = YoungHeap.new
      @room = HeapRoom.new(@heap)
      @left = @looked_after = 1
      @unnoted = 0
      @fullness = 0.0
      # Until the first requests have shown theirs.
      @growth = 0.02
      @margin = MARGINS.min
      @count = GC.count
      @tries = @spare = 0
      @sweep = Sweep.new
    end

    # After a response.
    def call
      return if (@left -= 1).positive?

      @room.note(@looked_after)
      @unnoted += @looked_after
      learn
      proceed
      @left = @looked_after = [[due ? try_again : responses, 1].max, LONGEST].min
    end

    private

    def proceed
      at_rest = GCFigures.latest(:state, :none) == :none
      look if at_rest
      return go_on if IN_STEPS

      finish unless at_rest
    end

    # Ruby 3.1 does not say.
    #
    # @return [Symbol, nil] why the next collection will be a full mark
    def due = (GCFigures.latest(:need_major_by) if SAYS_DUE)

    # Half of the way to when it is time, if that is not now. None after a collection: it may have freed little, and have found that a
    # full mark is due.
    def responses = @fullness.zero? ? 0 : ((near - @fullness) / 2 / @growth).floor

    def near
      [1 - (@margin * @growth), FULL].max
    end

    # After the next response, while that may help: there is no good moment where clients always wait, and no collection where
    # the app has disabled them.
    def try_again
      (@tries += 1) > TRIES ? LONGEST : 1
    end

    # From collections that Ruby has made.
    def learn
      count = GC.count
      return if count == @count

      @count = count
      @tries = 0
      collected
      @margin = [@margin + 1, MARGINS.max].min
    end

    def look
      @sweep.over
      note(@heap.fullness)
      due ? pause(true) { collect(true) } : collect_soon
    end

    def collect_soon
      return if @fullness < near

      pause(1 - @fullness < MARGINS.min * @growth) do
        @room.make
        collect(false)
      end
    end

    # What a request makes the heap fuller by.
    def note(fullness)
      grown = (fullness - @fullness) / @unnoted
      @growth = [grown, @growth * DECAY].max if grown.positive?
      @fullness = fullness
      @unnoted = 0
    end

    def collect(full_mark)
      GC.start(full_mark: full_mark, **HOW)
      collected
      @fullness = 0.0
      @unnoted = 0
      @margin = [@margin * LATER, MARGINS.min].max unless full_mark
      @count = GC.count
      @tries = 0
    end

    def collected
      # More objects than that would have Ruby collect sooner.
      @spare = @heap.spare / 2
      @heap.collected
      @room.collected
      @sweep.begun
    end

    # Ruby has begun a collection in a request, and goes on with it in the next ones: how full the heap is will show then. At
    # its end a full mark may be due.
    def finish
      @fullness = near
      pause(!due.nil?) { collect(true) if due }
    end

    # With a collection that has begun, here or in a request.
    def go_on
      MOST_STEPS.times { (at?(:marking) && stand_still(true) { step(:marking) }) or break }
      MOST_STEPS.times { (at?(:sweeping) && @spare.positive? && stand_still(false) { @spare -= step(:sweeping) }) or break }
      sweep_rest if at?(:sweeping)
    end

    def at?(state) = GCFigures.latest(:state) == state

    # Ruby goes on for each batch of objects that are made.
    #
    # @return [Integer] how many were
    def step(state)
      @fullness = near
      over = now + STEP
      made = 0
      while at?(state) && now < over
        Fastrack.make_objects(OBJECTS, YoungHeap::SLOT)
        made += OBJECTS
      end
      made
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # Sweeps what is left, if that is little: its last pages are swept in one go, in whatever request is next. Then Ruby knows
    # whether a full mark is due, which it would also begin there.
    def sweep_rest
      @fullness = near
      left = @sweep.left
      pause(false) { @sweep.over } if left && left <= REST_OF_SWEEP
    end

    # @param urgent [Boolean] whether the others may be busy, and are left some clients
    # @yield when the garbage collector is at rest
    # @return [Boolean, nil] whether this was a moment for it
    def pause(urgent)
      stand_still(urgent) do
        # It finishes what has begun.
        unless GC.disable
          GC.enable
          yield
        end
        true
      end
    end

    # The same, whatever the garbage collector is at.
    #
    # @return [Object, nil] the block's result
    def stand_still(urgent)
      engine = @engine.call
      return unless engine.begin_pause(urgent)

      begin
        yield
      ensure
        engine.end_pause
      end
    end
  end
end
