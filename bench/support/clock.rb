# frozen_string_literal: true

module Bench
  # @return [Float] monotonic seconds
  def self.now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # Calls the block until it gives a true value, for so many seconds at most.
  #
  # @return [Object, nil] the value; nil if there was none in that time
  def self.await(seconds, step: 0.05)
    deadline = now + seconds
    until (value = yield)
      return if now > deadline

      sleep step
    end
    value
  end
end
