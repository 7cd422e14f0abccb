# frozen_string_literal: true

require_relative "figures"

module Fastrack
  # How much of the room for new objects is used up: when all of it is, Ruby collects. Since Ruby 3.2 the heap has several pools, for
  # objects of different sizes. The fullest pool counts.
  class YoungHeap
    # Ruby 3.3 and later say how many objects are in a pool.
    POOLS = GCFigures.tells?(:slot_size, :heap_eden_slots, :total_allocated_objects, :total_freed_objects) { GC.stat_heap(0) }

    # Whether Ruby tells enough.
    KNOWN = POOLS || GCFigures.tells?(:total_allocated_objects, :heap_free_slots, :heap_available_slots) { GC.stat }

    # Bytes of a page of Ruby's: 16,384 with Ruby 3.1.
    PAGE = GC.const_defined?(:INTERNAL_CONSTANTS) ? GC::INTERNAL_CONSTANTS.fetch(:HEAP_PAGE_SIZE, 65_536) : 65_536
    SLOT = 40

    # Ruby lets a pool grow by itself that has less than this share of its slots free after a collection.
    LEAST_FREE = 0.05

    def initialize
      @stats = {}
      @pools = {}
      collected
    end

    # Since the last collection. It means nothing while Ruby is still sweeping: garbage counts as used until then.
    #
    # @return [Float] 0.0 to 1.0, at which Ruby collects
    def fullness
      note_pools
      [malloc, *@pools.each_value.map(&:fullness)].max
    end

    # To be called after each collection.
    def collected
      @pools = @pools.clear
      note_pools
    end

    # @return [Integer] the size of the slots of the pool that will be used up first
    def fullest = @pools.max_by { |_, pool| pool.fullness }.first

    # @param slot_size [Integer]
    # @return [Pool] as it was at the last look
    def pool(slot_size) = @pools.fetch(slot_size)

    # @return [Hash{Integer => Integer}] full marks that were made for want of free slots, by the size of the pool's
    def forced = POOLS ? GC.stat_heap.to_h { |_, pool| [pool[:slot_size], pool[:force_major_gc_count].to_i] } : {}

    # @return [Integer] how many of the smallest slots were free at the last look
    def spare = @pools.min_by(&:first).last.unused

    # @return [Integer] bytes of all slots
    def bytes = @pools.sum { |size, pool| size * pool.slots }

    private

    # What is known of one pool. `begun` is how many objects had been made in it when there was a collection, `made` how many
    # there are now; `unused` ones of its `slots` can be used before the next one, and `shared` ones in pages that any pool may get.
    Pool = Struct.new(:begun, :made, :unused, :shared, :slots) do
      # For all that is made from one collection to the next.
      def room = unused + shared + made - begun

      def fullness = room < slots * LEAST_FREE ? 0.0 : (made - begun).fdiv(room)
    end
    private_constant :Pool

    def malloc
      limit = GCFigures.stat(:malloc_increase_bytes_limit)
      limit.positive? ? GCFigures.stat(:malloc_increase_bytes).fdiv(limit) : 0.0
    end

    def note_pools
      return note(SLOT, GCFigures.stat(:total_allocated_objects), *only_pool) unless POOLS

      GC.stat_heap(nil, @stats)
      @stats.each_value do |stat|
        slots = stat[:heap_eden_slots]
        made = stat[:total_allocated_objects]
        unused = slots - made + stat[:total_freed_objects]
        note(stat[:slot_size], made, unused + own_spare(stat), shared_spare(stat), slots)
      end
    end

    def note(size, made, unused, shared, slots)
      pool = @pools[size] ||= Pool.new(made)
      pool.made = made
      pool.unused = unused
      pool.shared = shared
      pool.slots = slots
    end

    # Before Ruby 3.3: slots that can be used before a collection, and all.
    def only_pool
      spare = GCFigures.stat(:heap_allocatable_pages) * PAGE / SLOT
      [GCFigures.stat(:heap_free_slots) + spare, 0, GCFigures.stat(:heap_available_slots)]
    end

    # Slots in pages that a pool may still get. Before Ruby 3.4 they are its own.
    def own_spare(stat) = stat.fetch(:heap_allocatable_pages, 0) * PAGE / stat[:slot_size]

    # Since then they are any pool's.
    def shared_spare(stat)
      return 0 if stat.key?(:heap_allocatable_pages)

      allocatable(stat[:slot_size]) + (GCFigures.stat(:heap_empty_pages) * PAGE / stat[:slot_size])
    end

    # Ruby after 4.0 counts them in bytes.
    def allocatable(slot_size)
      GCFigures.stat(:heap_allocatable_slots, nil) || (GCFigures.stat(:heap_allocatable_bytes) / slot_size)
    end
  end

  # How much of the sweeping is left, which Ruby does in steps: after one full mark, or one minor collection, it takes about as long
  # as after the last of the same kind.
  class Sweep
    def initialize
      # By whether it was a full mark.
      @lasted = {}
      begun
    end

    # A collection has begun.
    def begun
      @began = nil
    end

    # While Ruby is sweeping.
    #
    # @return [Integer, nil] nanoseconds that it still takes; nil before the first of its kind, and where Ruby measures no times
    def left
      @full = !GCFigures.latest(:major_by).nil?
      @began ||= GCFigures.time
      lasted = @lasted[@full]
      lasted && (lasted - (GCFigures.time - @began))
    end

    # It has swept all.
    def over
      return unless @began

      took = GCFigures.time - @began
      @lasted[@full] = took if took.positive?
      @began = nil
    end
  end

  # Gives the heap room for more requests, so that collections are rare: each takes about as long, however many requests lie between
  # two of them.
  #
  # Ruby collects as soon as one of the heap's pools is used up. It lets a pool grow by the objects that live in it, not by those that
  # requests make and drop. So a pool with few living objects may have room for ten requests, when the other pools have room for
  # hundreds. Ruby also makes a full mark when a fifth of a pool or less is free after a collection. A pool that has hardly more free
  # slots after a full mark needs the next one after a few collections, and does not grow. To give a pool room, the worker makes
  # objects in it and drops them: their slots stay in the pool.
  #
  # Ruby tells since 3.3 how many objects are made in each pool. Before, this does nothing.
  class HeapRoom
    # Requests that there is to be room for between two collections. Ruby 3.4 by itself leaves room for more than fifty in most pools,
    # and a collection takes longer there.
    REQUESTS = RUBY_VERSION >= "3.4" ? 70 : 50

    # A share of REQUESTS: when less than this is lacking, nothing is added.
    LACK = 0.1

    # Collections that there are to be between two full marks for want of free slots.
    APART = 30

    # Slots that are added when there were fewer, as a share of the pool.
    FREER = 0.05

    # The most that is added in all, as a share of the heap's size.
    SHARE = 0.25

    # The most bytes that are added at a time, and the most free slots that may have to be used up first: some milliseconds each.
    STEP = 5_000_000
    FREE = 400_000

    # @param heap [YoungHeap]
    def initialize(heap)
      @heap = heap
      @added = 0
      @lacking_free = []
      @forced = @heap.forced
      @marks = GCFigures.stat(:major_gc_count)
      @marked = GC.count
      collected
    end

    # @param count [Integer] of responses since the last call of this
    def note(count)
      @responses += count
    end

    # There was a collection.
    def collected
      @responses = 0
    end

    # Makes some of the room that is lacking. A collection must follow.
    def make
      return unless YoungHeap::POOLS

      look_for_full_marks
      size = @lacking_free.find { |one| @heap.pool(one).unused <= FREE } || @heap.fullest
      pool = @heap.pool(size)
      slots = [lacking(size, pool), STEP / size, ((@heap.bytes * SHARE) - @added).to_i / size].min
      grow(size, pool.unused, slots) if slots.positive? && pool.unused <= FREE
    end

    private

    def lacking(size, pool)
      return (pool.slots * FREER).to_i if @lacking_free.include?(size)
      return 0 if @responses.zero?

      wanted = REQUESTS * (pool.made - pool.begun) / @responses
      pool.room < wanted * (1 - LACK) ? wanted - pool.room : 0
    end

    # Whether the last one was made for want of free slots in a pool, too soon after the one before.
    def look_for_full_marks
      marks = GCFigures.stat(:major_gc_count)
      return if marks == @marks

      forced = @heap.forced
      @lacking_free = GC.count - @marked < APART ? forced.keys.select { |size| forced[size] > @forced.fetch(size) } : []
      @forced = forced
      @marks = marks
      @marked = GC.count
    end

    # Takes this number of slots in pages that any pool may get.
    def grow(size, unused, slots)
      @added += slots * size
      @lacking_free.delete(size)
      GC.disable
      Fastrack.make_objects(unused + slots, size)
    rescue NoMemoryError
      # The system has no more (`ulimit -v`). The collection that follows frees what was made.
    ensure
      GC.enable
    end
  end
end
