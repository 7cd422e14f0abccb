# frozen_string_literal: true

require_relative "figures"

module Fastrack
  # What AutoGC knows of full marks: collections that look at all objects, and last for as long as many others.
  module FullMarks
    # When a full mark will be due. Before Ruby 3.4 Ruby says so a few requests before, which may be too late for a good moment. It
    # takes about as many collections as the one before took.
    class Foresight
      # In Ruby 3.4 it is known when the heap is swept, which is done here in time.
      SAID_LATE = RUBY_VERSION < "3.4"

      # Of that number. Each full mark that is made early costs as much as others do.
      SOON = 0.85
      LATER = 1.05

      # Collections from one to the next.
      OFTEN = 20

      def initialize
        @marks = GCFigures.stat(:major_gc_count)
        @last = GC.count
        @interval = 0
      end

      # Ruby has collected.
      #
      # @param count [Integer] collections until now
      def learn(count)
        marks = GCFigures.stat(:major_gc_count)
        return if marks == @marks

        @interval = count - @last
        @marks = marks
        @last = count
      end

      # A full mark was made between requests.
      def marked(count)
        @interval *= LATER
        @marks = GCFigures.stat(:major_gc_count)
        @last = count
      end

      # Not while they come often: then Ruby is letting the heap grow.
      def soon?(count)
        SAID_LATE && @interval >= OFTEN && count - @last >= @interval * SOON
      end
    end
  end

  # Has one worker at a time begin a full mark that is made in steps: until it is over, some twelve requests of that worker take twice as
  # long. If all workers were at one, clients would queue. And they would be: the heaps of workers of one master grow alike.
  class FullMarkTurn
    # So many responses it is put off while another worker is at one, which takes that worker about a dozen.
    TRIES = 30

    # @yieldreturn [#begin_full_mark, #end_full_mark] the engine
    def initialize(&engine)
      @engine = engine
      @taken = false
      @tries = 0
    end

    # A full mark is to begin, or has begun in a request.
    #
    # @return [Boolean] whether it may
    def take
      @taken ||= @engine.call.begin_full_mark
      @tries = @taken ? 0 : @tries + 1
      @taken || @tries > TRIES
    end

    # It is over, or does not begin.
    def over
      @engine.call.end_full_mark if @taken
      @taken = false
    end
  end

  # Ruby marks and sweeps in steps, one for each batch of objects that are made. Making some between two requests has it go on there.
  module Steps
    # Objects that are made for one step of marking (gc/default/default.c). Ruby takes as large ones as it needs to be ready before
    # the free slots are used up that it has kept for them.
    OBJECTS = 500

    # Seconds of steps, after which to see whether somebody waits.
    TIME = 0.001

    # The most steps after a response.
    MOST = 100

    module_function

    # @param state [Symbol] :marking or :sweeping
    def left?(state) = GCFigures.latest(:state) == state

    # Makes some.
    #
    # @return [Integer] objects that were made for them
    def make(state)
      over = now + TIME
      made = 0
      while left?(state) && now < over
        Fastrack.make_objects(OBJECTS, YoungHeap::SLOT)
        made += OBJECTS
      end
      made
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
