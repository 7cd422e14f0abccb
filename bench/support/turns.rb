# frozen_string_literal: true

require "fiber"

module Bench
  # Lets measurements of several servers take turns. Each goes on until it waits for its next turn, or is over: one that never waits
  # is over before the next one begins. The figures of a comparison are then seconds apart. A machine's speed may change within
  # minutes.
  module Turns
    # The others, or another measurement, failed, or the user has had enough.
    class Over < StandardError; end

    # Called in a measurement.
    def self.await = Fiber.yield

    # Measures in so many turns. One alone does not wait.
    #
    # @yieldreturn [Object] what a turn comes to
    def self.each(count)
      Array.new(count) do
        await if count > 1
        yield
      end
    end

    # @return [Hash{Object => Object}] what each came to
    def self.take(measurements)
      results = {}
      left = measurements.transform_values { |measurement| Fiber.new(&measurement) }
      forwards = true
      until left.empty?
        (forwards ? left.to_a : left.to_a.reverse).each do |name, fiber|
          result = fiber.resume
          next if fiber.alive?

          results[name] = result
          left.delete(name)
        end
        forwards = !forwards
      end
      results
    ensure
      left.each_value { |fiber| give_up(fiber) }
    end

    # The measurement stops its own server.
    def self.give_up(fiber)
      fiber.raise(Over) if fiber.alive?
    rescue Over, FiberError
      # It had not begun.
      nil
    end
    private_class_method :give_up
  end
end
