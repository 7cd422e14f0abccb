# frozen_string_literal: true

require_relative "gc_mode"

# Waiting for a condition instead of for time.
module Eventually
  # Seconds between two looks at the condition: at first, and at most.
  STEP = 0.01
  LONGEST = 0.05

  class TimedOut < StandardError; end

  module_function

  # @return [Float] seconds
  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # Polls the block until it gives a true value, and returns that value.
  #
  # @param timeout [Numeric] seconds after which TimedOut is raised; more under a GcMode
  # @param message [String, #call] what was awaited, for the failure's text
  def eventually(timeout = 20, message = nil)
    timeout = GcMode.patient(timeout)
    began = now
    deadline = began + timeout
    loop do
      value = yield
      return value if value

      if now > deadline
        text = message.respond_to?(:call) ? message.call : message
        raise TimedOut, "not within #{timeout} s: #{text || "the condition at #{caller(1, 1).first}"}"
      end
      # What has taken a second may take a little more: looking costs processor time that servers lack.
      sleep(((now - began) / 20).clamp(STEP, LONGEST))
    end
  end
end
