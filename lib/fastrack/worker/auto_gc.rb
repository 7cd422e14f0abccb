# frozen_string_literal: true

require_relative "full_marks"

module Fastrack
  # OobGC=auto: collects garbage between two requests, shortly before Ruby would in one of the next, and only while that keeps
  # no client waiting.
  #
  # Ruby collects when the room for young objects is used up, or so much was allocated by malloc. When only a few more requests
  # fit in, this waits for a moment in which nobody waits, no other worker collects, and another one is idle: who comes
  # meanwhile is served there. Before the last of those requests nobody else need be idle. A full mark that Ruby says is due,
  # and would make at its next collection, is made as soon as nobody waits here: it takes far longer than other collections,
  # and in a request somebody surely waits. Where there is no such moment, under full load, Ruby collects as it would without
  # this, and what it leaves unfinished is finished here.
  #
  # The fewer requests it waits for, the rarer are collections; the more, the surer is such a moment. So it learns: from
  # each collection that Ruby makes in a request, to begin earlier, and from its own ones to begin later.
  #
  # It costs a method call per response, and now and then a look at the heap.
  class AutoGC
    # For how many requests it waits for a good moment: first, at least, at most; and what each collection changes.
    MARGIN = 3.0
    MARGINS = (1.5..12.0).freeze
    EARLIER = 1.0
    LATER = 0.95

    # It collects nothing in a heap that is less full: each collection then comes too often.
    FULL = 0.65

    # From there on nobody else need be idle.
    URGENT = 1.5

    # How much fuller a response's request makes the heap: at first, and by the next one that makes it less.
    GROWTH = 0.02
    DECAY = 0.9

    # Collections for which Ruby is left alone when a full mark is due for want of free slots, and comes sooner than that after
    # the last: Ruby lets the heap grow in its own collections, which makes full marks rare, and hardly in these.
    REST = 10

    SAYS_DUE = GC.latest_gc_info.key?(:need_major_by)

    # Most responses from one look to the next.
    LONGEST = 64

    # Responses after each of which a full mark that is due is tried.
    TRIES = 64

    # @yieldreturn [#begin_pause, #end_pause] the engine
    def initialize(&engine)
      @engine = engine
      @heap = YoungHeap.new
      @left = @looked_after = 1
      @fullness = 0.0
      @growth = GROWTH
      @margin = MARGIN
      @count = @rested = GC.count
      @marked = -REST
      @tries = 0
      @foresight = FullMarks::Foresight.new
    end

    # After a response.
    def call
      return if (@left -= 1).positive?

      learn
      if @count >= @rested
        GC.latest_gc_info(:state) == :none ? look : finish
      end
      @left = @looked_after = [[due ? try_again : responses, 1].max, LONGEST].min
    end

    private

    # Ruby 3.1 does not say.
    #
    # @return [Symbol, nil] why the next collection will be a full mark, unless Ruby is left alone with it
    def due
      SAYS_DUE && @count >= @rested ? GC.latest_gc_info(:need_major_by) : nil
    end

    # Half of the way to when it is time. None after a collection: it may have freed little, and have found that a full mark is
    # due.
    def responses
      return 0 if @fullness.zero?

      ((@fullness < near ? near - @fullness : GROWTH) / 2 / @growth).floor
    end

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
      @foresight.learn(count)
      @margin = [@margin + EARLIER, MARGINS.max].min
    end

    def look
      note(@heap.fullness)
      return leave_to_ruby if rests?

      if due
        pause(true) { collect(true) }
      else
        collect_soon
      end
    end

    def collect_soon
      return if @foresight.soon?(@count) && pause(false) { collect(true) }

      pause(1 - @fullness < URGENT * @growth) { collect(false) } if @fullness >= near
    end

    def rests?
      FullMarks::Foresight::SAID_LATE && due == :nofree && @count < @marked + REST
    end

    def leave_to_ruby
      @rested = @count + REST
    end

    # What a request makes the heap fuller by.
    def note(fullness)
      grown = (fullness - @fullness) / @looked_after
      @growth = [grown, @growth * DECAY].max if grown.positive?
      @fullness = fullness
    end

    def collect(full_mark)
      GC.start(full_mark: full_mark)
      @heap.collected
      @fullness = 0.0
      @margin = [@margin * LATER, MARGINS.min].max unless full_mark
      @count = GC.count
      @tries = 0
      return unless full_mark

      @marked = @count
      @foresight.marked(@count)
    end

    # Ruby has begun a collection in a request, and goes on with it in the next ones: how full the heap is will show then. At
    # its end a full mark may be due.
    def finish
      @fullness = near
      pause(!due.nil?) { collect(true) if due && !rests? }
    end

    # @param urgent [Boolean] whether nobody else need be idle
    # @yield when the garbage collector is at rest
    # @return [Boolean] whether this was a moment for it
    def pause(urgent)
      engine = @engine.call
      return false unless engine.begin_pause(urgent)

      begin
        # It finishes what has begun.
        return true if GC.disable

        GC.enable
        yield
        true
      ensure
        engine.end_pause
      end
    end

    # How full the heap is that Ruby collects when it is used up. Since Ruby 3.2 it has several pools, for objects of different
    # sizes: the fullest counts.
    class YoungHeap
      # Ruby 3.3 and later say how many objects are in a pool.
      POOLS = GC.respond_to?(:stat_heap) && GC.stat_heap(0).key?(:total_allocated_objects)

      # Of Ruby's pages.
      PAGE = 65_536
      SLOT = 40

      # A pool with less than this share free after a collection is Ruby's to let grow.
      LEAST_FREE = 0.05

      def initialize
        @pools = {}
        @most_free = Hash.new(0)
      end

      # @return [Float]
      def fullness
        [malloc, *free_slots.map { |pool, (free, slots)| used(pool, free, slots) }].max
      end

      # What is free now is all there is until the next collection.
      def collected
        free_slots.each { |pool, (free, _)| @most_free[pool] = free }
      end

      private

      def malloc
        GC.stat(:malloc_increase_bytes).fdiv(GC.stat(:malloc_increase_bytes_limit))
      end

      def used(pool, free, slots)
        most = @most_free[pool] = [@most_free[pool], free].max
        most < slots * LEAST_FREE ? 0.0 : 1 - free.fdiv(most)
      end

      # @return [Hash{Integer => Array(Integer, Integer)}] by pool, the slots that can be used before a collection, and all
      def free_slots
        return { 0 => [GC.stat(:heap_free_slots) + (GC.stat(:heap_allocatable_pages) * PAGE / SLOT), GC.stat(:heap_available_slots)] } unless POOLS

        GC.stat_heap(nil, @pools)
        @pools.transform_values do |pool|
          slots = pool[:heap_eden_slots]
          free = slots - pool[:total_allocated_objects] + pool[:total_freed_objects]
          [free + spare(pool), slots]
        end
      end

      # Slots in pages that a pool may still get; since Ruby 3.4 those are any pool's.
      def spare(pool)
        in_page = PAGE / pool[:slot_size]
        pages = pool[:heap_allocatable_pages]
        pages ? pages * in_page : GC.stat(:heap_allocatable_slots) + (GC.stat(:heap_empty_pages) * in_page)
      end
    end
  end
end
