# frozen_string_literal: true

require_relative "figures"
require_relative "young_heap"

module Fastrack
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
