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

    # @return [Integer] of its smallest slots those that could still be used before a collection at the last look
    def unused = @pools.min_by(&:first).last.free

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

  # How far Ruby is with sweeping, which it does bit by bit. It takes about as long as after the last collection of the same kind.
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
      @full = !GC.latest_gc_info(:major_by).nil?
      @began ||= GC.total_time
      lasted = @lasted[@full]
      lasted && (lasted - (GC.total_time - @began))
    end

    # It has swept all.
    def over
      return unless @began

      took = GC.total_time - @began
      @lasted[@full] = took if took.positive?
      @began = nil
    end
  end

  # Slots that are left over when Ruby collects, because another pool is used up before theirs. Objects may be made there to have Ruby
  # sweep: it does so when a pool needs a page, and then in all pools. More objects would have it collect sooner.
  class SpareSlots
    # Of those that were left over the last time. More of them take more time than they spare requests.
    SHARE = 0.5

    def initialize
      @left = @made = 0
    end

    # There was a collection.
    #
    # @param unused [Integer] slots that were left over
    def collected(unused)
      @left = ((unused + @made) * SHARE).to_i
      @made = 0
    end

    # Whether objects may be made before the next collection.
    def left? = @left.positive?

    # So many objects were made.
    #
    # @return [Boolean, nil] whether more may be; nil if not
    def take(count)
      @left -= count
      @made += count
      left? || nil
    end
  end

  # Gives the young heap room for more requests, so that collections are rare: one takes about as long as another, however many
  # requests lie between them.
  #
  # Ruby collects as soon as one of the heap's pools is used up, and lets a pool grow by what lives in it, not by what requests
  # make and drop: one of few objects that live and many that do not may have room for ten requests, beside others that have it
  # for hundreds. Objects that are made and dropped at once leave their slots to the pool for good.
  #
  # That is so with Ruby 3.3. Before, there is nothing to tell how many objects are made in each pool; since Ruby 3.4 pools share the
  # room that is left.
  class HeapRoom
    NEEDED = YoungHeap::POOLS && RUBY_VERSION < "3.4"

    # Requests for which there is to be room from one collection to the next.
    REQUESTS = 50

    # At most so much is added in all, as a share of the heap's size.
    SHARE = 0.25

    # Collections from one look to the next: by then the heap has got the size that Ruby gives it, and means are steady.
    COLLECTIONS = 16

    # Of REQUESTS: room for a few more is not worth it.
    LACK = 0.2

    # What an embedded string takes of its slot besides its bytes.
    STRING = 25

    # @param heap [YoungHeap]
    def initialize(heap)
      @heap = heap
      @added = 0
      begin_period
    end

    # @param count [Integer] of responses since the last call of this
    def note(count)
      @responses += count
    end

    # @return [Boolean] whether it is time for a look
    def due?
      NEEDED && GC.count >= @next
    end

    # Makes the room that is lacking. This takes some tens of milliseconds, and a collection must follow.
    #
    # @return [Boolean] whether there is any; if not, there is nothing to do
    def make
      lack = lacking
      begin_period
      return false if lack.empty?

      @added += bytes(lack)
      GC.disable
      lack.each { |size, slots| fill(size, slots) }
      true
    ensure
      GC.enable
    end

    private

    def begin_period
      @responses = 0
      @next = GC.count + COLLECTIONS
      @made = made
    end

    # @return [Hash{Integer => Integer}] by size of slots, the objects that were made until now
    def made
      NEEDED ? GC.stat_heap.to_h { |_, pool| [pool[:slot_size], pool[:total_allocated_objects]] } : {}
    end

    # @return [Hash{Integer => Integer}] slots by their size, no more than may be added
    def lacking
      return {} if @responses.zero?

      lack = made.filter_map do |size, count|
        wanted = REQUESTS * (count - @made.fetch(size)) / @responses
        slots = wanted - @heap.room(size)
        [size, slots] if slots > wanted * LACK
      end.to_h
      scale(lack, (@heap.bytes * SHARE) - @added)
    end

    def scale(lack, most)
      share = most / [bytes(lack), 1].max
      share >= 1 ? lack : lack.transform_values { |slots| (slots * [share, 0].max).to_i }.select { |_, slots| slots.positive? }
    end

    def bytes(slots) = slots.sum { |size, count| size * count }

    def fill(size, slots)
      text = ("x" * (size - STRING)).freeze
      slots.times { text.dup }
    end
  end
end
