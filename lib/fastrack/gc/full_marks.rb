# frozen_string_literal: true

require_relative "figures"
require_relative "young_heap"

module Fastrack
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
