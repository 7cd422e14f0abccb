# frozen_string_literal: true

require_relative "../log"
require_relative "process_memory"

module Fastrack
  # What the master does about a worker that takes more than MaxMemoryPerChild.
  class ChildLimit
    # @param handle [WorkerHandle]
    # @param limit [Integer, nil] bytes; nil: not any more
    # @param recycles [Boolean] whether a new worker would take less
    def call(handle, limit, recycles:)
      return if limit.nil?

      text = "worker #{handle.nr} (pid #{handle.pid}) takes #{ProcessMemory.format(ProcessMemory.of(handle.pid).pss)} of memory after " \
             "#{handle.requests} request#{"s" unless handle.requests == 1}; MaxMemoryPerChild is #{ProcessMemory.format(limit)}: "
      if recycles
        handle.recycle(:memory)
        Log.line("#{text}recycling it")
      elsif @told != limit
        @told = limit
        Log.line("#{text}any new worker does, so that recycling would gain nothing")
      end
    end
  end
end
