# frozen_string_literal: true

require_relative "figures"
require_relative "young_heap"

module Fastrack
  # OobGC=auto: collects garbage between two requests, shortly before Ruby would collect in a request, and only while no client
  # has to wait for it.
  #
  # Ruby collects when the room for young objects is used up, or when malloc has reached its limit. When the room is enough for a
  # few more requests only, the worker looks for a moment in which nobody waits, no other worker collects, and another worker is
  # idle to serve the clients that come meanwhile. Before the last of those requests the other workers may be busy; a client or two
  # is left to each of them. A full mark takes far longer than other collections: when Ruby says that its next collection is a full
  # mark, it is made at the first such moment. Under full load there is no such moment. Then Ruby collects in a request, as it would
  # without this, and the worker finishes between requests what Ruby leaves unfinished.
  #
  # Ruby 3.4 leaves more slots of the heap free than earlier versions. It collects rarely, and each time there is much to mark and to
  # sweep. It makes a full mark in steps and sweeps in steps, one for every few hundred objects that are made. The worker makes such
  # objects between requests, until a client waits or the objects would use up the room. The next requests then sweep; their
  # last step takes long, so the worker makes that one between requests.
  #
  # The margin is the number of requests before the end of the room at which the worker begins to look. A small one makes
  # collections rare; a large one makes a good moment likely. It grows with each collection that Ruby makes in a request, and
  # shrinks with each that the worker makes.
  #
  # The price is a method call for each response, and a look at the heap for some of them.
  class AutoGC
    # The least and the largest margin, in requests. At the least one the other workers may be busy. A collection in a request adds 1;
    # one of the worker's own multiplies it by LATER.
    MARGINS = (1.5..12.0).freeze
    LATER = 0.95

    # It does not collect in a heap that is less full than this share: collections would come too often.
    FULL = 0.65

    # By which the growth per request falls at each look, as long as requests make the heap fuller by less than that.
    DECAY = 0.9

    SAYS_DUE = GCFigures.tells?(:need_major_by) { GC.latest_gc_info }

    # Whether marking and sweeping take so long that the worker does them in steps.
    IN_STEPS = RUBY_VERSION >= "3.4"
    HOW = (IN_STEPS ? { immediate_mark: false, immediate_sweep: false } : {}).freeze

    # The most steps after a response.
    MOST_STEPS = 100

    # Seconds of a step, after which to see whether somebody waits.
    STEP = 0.001

    # Objects for which Ruby makes one step of marking or sweeping (gc/default/default.c). It makes its steps as large as needed to
    # be ready before the free slots are used up.
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
      rested = at_rest?
      look if rested
      if IN_STEPS
        go_on
        look_again unless rested
      else
        finish unless rested
      end
    end

    def at_rest? = GCFigures.latest(:state, :none) == :none

    # The collection that has ended by these steps may have found that a full mark is due, which the next request would make.
    def look_again
      return unless at_rest? && due

      look
      go_on
    end

    # Ruby 3.1 does not say.
    #
    # @return [Symbol, nil] why the next collection will be a full mark
    def due = (GCFigures.latest(:need_major_by) if SAYS_DUE)

    # Responses until the next look: half of those until it is time to collect. The next one after a collection, which may have
    # freed little, and found that a full mark is due.
    def responses = @fullness.zero? ? 0 : ((near - @fullness) / 2 / @growth).floor

    def near
      [1 - (@margin * @growth), FULL].max
    end

    # After the next response, TRIES times. Then less often: where clients always wait there is no good moment, and where the app
    # has disabled the collector there is no collection.
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
      # Objects that the steps of sweeping may use up: with more, Ruby would collect sooner.
      @spare = @heap.spare / 2
      @heap.collected
      @room.collected
      @sweep.begun
    end

    # Ruby has begun a collection in a request, and goes on with it in the next ones. The heap counts as full until it is over.
    # At its end a full mark may be due.
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

    # Sweeps what is left, if that takes less than REST_OF_SWEEP: Ruby would sweep the last pages in one go, in the next request.
    # After them Ruby knows whether a full mark is due, and would begin that in the same request.
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
