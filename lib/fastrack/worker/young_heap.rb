# frozen_string_literal: true

module Fastrack
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
      @stats = {}
      @pools = {}
      collected
    end

    # From the last collection on. Not while Ruby is still sweeping: garbage counts as used until then.
    #
    # @return [Float]
    def fullness
      note_pools
      [malloc, *@pools.each_value.map(&:fullness)].max
    end

    # There was a collection.
    def collected
      @pools = @pools.clear
      note_pools
    end

    # @param slot_size [Integer] that of a pool
    # @return [Integer] slots of it that could be used from the last collection to the next
    def room(slot_size) = @pools.fetch(slot_size).room

    # @return [Integer] what all of its slots take
    def bytes = @pools.sum { |size, pool| size * pool.slots }

    private

    # What is known of one pool. `begun` is how many objects had been made in it when there was a collection, `made` how many
    # there are now; `free` slots can be used before the next one, of `slots`.
    Pool = Struct.new(:begun, :made, :free, :slots) do
      # For all that is made from one collection to the next.
      def room = free + made - begun

      def fullness = room < slots * LEAST_FREE ? 0.0 : (made - begun).fdiv(room)
    end
    private_constant :Pool

    def malloc
      GC.stat(:malloc_increase_bytes).fdiv(GC.stat(:malloc_increase_bytes_limit))
    end

    def note_pools
      return note(SLOT, GC.stat(:total_allocated_objects), *only_pool) unless POOLS

      GC.stat_heap(nil, @stats)
      @stats.each_value do |stat|
        slots = stat[:heap_eden_slots]
        made = stat[:total_allocated_objects]
        note(stat[:slot_size], made, slots - made + stat[:total_freed_objects] + spare(stat), slots)
      end
    end

    def note(size, made, free, slots)
      pool = @pools[size] ||= Pool.new(made)
      pool.made = made
      pool.free = free
      pool.slots = slots
    end

    # Before Ruby 3.3: slots that can be used before a collection, and all.
    def only_pool
      [GC.stat(:heap_free_slots) + (GC.stat(:heap_allocatable_pages) * PAGE / SLOT), GC.stat(:heap_available_slots)]
    end

    # Slots in pages that a pool may still get; since Ruby 3.4 those are any pool's.
    def spare(stat)
      in_page = PAGE / stat[:slot_size]
      pages = stat[:heap_allocatable_pages]
      pages ? pages * in_page : GC.stat(:heap_allocatable_slots) + (GC.stat(:heap_empty_pages) * in_page)
    end
  end
end
