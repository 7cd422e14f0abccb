# frozen_string_literal: true

require_relative "figures"

module Fastrack
  # OobGC=auto: makes the collection that Ruby would make in one of the next requests, if no client has to wait for its end (see
  # Engine#while_nobody_waits). Otherwise Ruby makes it in a request, as without OobGC.
  #
  # Ruby collects when one of its pools of slots is used up, or when malloc reaches its limit. GC.stat_heap and GC.stat tell how much of
  # each is left. The use by the last requests shows how many more requests the rest will last for. Ruby itself says when the next
  # collection will be a full one.
  #
  # Ruby lets a pool grow with the objects that live in the pool. A pool with few objects may last for ten requests, while other pools last
  # for hundreds. If a collection comes that soon, this class first makes objects in that pool, and their slots stay there.
  class AutoGC
    # A collection is due when no more than one request is left, or no more than this share of the requests since the last collection. A
    # larger share finds a suitable moment more often, and makes more collections (bench/run: gc-heap-30, -50 and -70).
    EARLY_SHARE = 0.1

    # Least number of requests between two collections. Otherwise an app that uses up the heap within fewer requests would have a collection
    # after each.
    LEAST_APART = 4

    # Requests that a pool is to last for (bench/run: gc-heap-30, -50 and -70).
    ROOM_REQUESTS = 50

    # Bytes that a pool grows by at a time: some milliseconds.
    ROOM_STEP = 5_000_000

    # Bytes that pools grow by in all, as a share of the heap.
    ROOM_SHARE = 0.25

    # Most responses from one look at the heap to the next.
    LONGEST_INTERVAL = 64

    # Bytes of a page of slots, and bytes of an array's slot besides its elements (8 bytes each).
    PAGE = 65_536
    ARRAY_HEAD = 16

    # Since Ruby 3.4 a heap has more free slots. Collections are rarer, and too long to be made at once.
    STEPWISE = (RUBY_VERSION >= "3.4" ? { immediate_mark: false, immediate_sweep: false } : {}).freeze

    # @return [Boolean] whether Ruby tells enough: 3.3 and later do
    def self.possible?
      GCFigures.tells?(:slot_size, :heap_eden_slots, :total_allocated_objects, :total_freed_objects) { GC.stat_heap(0) } &&
        GCFigures.tells?(:malloc_increase_bytes, :malloc_increase_bytes_limit) { GC.stat } &&
        GCFigures.tells?(:need_major_by, :state) { GC.latest_gc_info } &&
        (GCFigures.tells?(:heap_allocatable_pages) { GC.stat_heap(0) } ||
         %i[heap_allocatable_slots heap_allocatable_bytes].any? { |name| GCFigures.tells?(name) { GC.stat } })
    end

    # @yieldreturn [Engine]
    def initialize(&engine)
      @engine = engine
      @stat = {}
      @pools = {}
      @grown = 0
      begin_anew
    end

    # To be called after each response.
    def call
      @served += 1
      @look_in -= 1
      look if @look_in.zero?
    end

    private

    # Called after a collection.
    def begin_anew
      @count = GC.count
      @served = 0
      @rooms = nil
      @look_in = 1
    end

    def look
      @look_in = 1
      begin_anew if GC.count != @count
      state = GCFigures.latest(:state)
      return if state == :marking
      return collect(full_mark: true) if GCFigures.latest(:need_major_by)
      # Until Ruby has swept all pages, the figures do not tell how much is free.
      return if state == :sweeping

      now = rooms
      return note(now) unless @rooms

      left = requests_left(now)
      early = [1, @served * EARLY_SHARE].max
      return collect(full_mark: false) { grow(now) } if left <= early && @served >= LEAST_APART

      @look_in = ((left - early) / 2).clamp(1, LONGEST_INTERVAL).to_i
    end

    def note(rooms)
      @rooms = rooms
      @noted = @served
    end

    # @return [Float] requests until Ruby collects, if they use as much as the last ones
    def requests_left(now)
      now.zip(used(now)).map { |room, used| used.positive? ? room / used : Float::INFINITY }.min
    end

    # @return [Array<Float>] slots of each pool, and bytes of malloc, that a request uses
    def used(now) = @rooms.zip(now).map { |before, room| (before - room).fdiv(@served - @noted) }

    # @return [Array<Integer>] slots that are left in each pool, and bytes that are left for malloc
    def rooms
      GC.stat(@stat)
      GC.stat_heap(nil, @pools)
      # Before Ruby 3.4 each pool has pages of its own to grow by. Since then any pool may get them: Ruby 3.4 and 4.0 tell how many slots, 4.1
      # how many bytes.
      shared, bytes = @stat.fetch(:heap_allocatable_slots, 0), @stat.fetch(:heap_allocatable_bytes, 0)
      pages = @stat.fetch(:heap_empty_pages, 0)
      slots = @pools.each_value.map do |pool|
        spare = ((pool.fetch(:heap_allocatable_pages, pages) * PAGE) + bytes) / pool[:slot_size]
        pool[:heap_eden_slots] - pool[:total_allocated_objects] + pool[:total_freed_objects] + shared + spare
      end
      slots << (@stat[:malloc_increase_bytes_limit] - @stat[:malloc_increase_bytes])
    end

    # @yield before the collection, while the collector is disabled
    def collect(full_mark:)
      @engine.call.while_nobody_waits do
        # Thread#raise and Timeout must not leave the collector disabled.
        Thread.handle_interrupt(Object => :never) do
          # The app has disabled the collector.
          next if GC.disable

          yield if block_given?
          GC.enable
          GC.start(full_mark: full_mark, **STEPWISE)
          begin_anew
        end
      end
    end

    # Has the pool that will be used up first last for ROOM_REQUESTS requests.
    def grow(now)
      used = used(now)
      at = @pools.size.times.min_by { |index| used[index].positive? ? now[index] / used[index] : Float::INFINITY }
      size = @pools.values[at][:slot_size]
      most = (@pools.each_value.sum { |pool| pool[:slot_size] * pool[:heap_eden_slots] } * ROOM_SHARE) - @grown
      bytes = [used[at] * (ROOM_REQUESTS - @served) * size, ROOM_STEP, most].min
      return unless bytes.positive?

      @grown += bytes
      (now[at] + (bytes / size)).to_i.times { Array.new((size - ARRAY_HEAD) / 8) }
    rescue NoMemoryError
      # The system has no more (`ulimit -v`). The collection that follows frees what was made.
    end
  end
end
