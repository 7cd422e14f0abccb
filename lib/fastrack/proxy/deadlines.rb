# frozen_string_literal: true

require_relative "../log"

module Fastrack
  module Proxy
    # Ends a process of the proxy whose state lasts too long, so that no state lasts for ever:
    #
    #     booting    WorkerBootTimeout
    #     serving    WorkerTimeout, since the last answer to the master's question
    #     ending     GracefulTimeout
    class Deadlines
      # Seconds between an answer and the next question, at most; and at least so many questions in WorkerTimeout.
      PAUSE = 5
      QUESTIONS = 4

      # Seconds without an answer after which the process counts as silent.
      PATIENCE = 1

      # Seconds that a late process gets. If the machine has stood still, its answer is on its way.
      GRACE = 2

      def initialize
        @late = {}
      end

      # Whether the serving process owes an answer.
      def silent? = @silent

      # @param now [Float] monotonic seconds
      # @param configuration [Configuration]
      # @param booting [Child, nil]
      # @param serving [Child, nil]
      # @param ending [Array<Child>]
      # @return [Array<Float>] monotonic seconds when to look again
      def step(now, configuration, booting:, serving:, ending:)
        late, @late = @late, {}
        ending.each { |child| kill(child, "has not finished within #{seconds(configuration.graceful_timeout)} (GracefulTimeout)") if child.kill_at&.<=(now) }
        due = [boot_limit(booting, configuration.worker_boot_timeout), serve_limit(serving, configuration.worker_timeout)].compact
        due = due.map { |child, at, text| check(child, at, text, now, late) }
        [*due, *ending.filter_map(&:kill_at), question(serving, configuration.worker_timeout, now)].compact.select { |at| at > now }
      end

      private

      # @return [Array(Child, Float, String), nil]
      def boot_limit(child, time)
        [child, child.spawned_at + time, "has not been ready within #{seconds(time)} (WorkerBootTimeout)"] if child && time.positive?
      end

      # @return [Array(Child, Float, String), nil]
      def serve_limit(child, time)
        asked = child&.asked_at or return
        [child, asked + time, "has said nothing for #{seconds(time)} (WorkerTimeout)"] if time.positive?
      end

      # @return [Float, nil] when to look again
      def question(child, time, now)
        @silent = false
        return unless child && time.positive?

        at = child.ask(now, [PAUSE, time / QUESTIONS].min)
        return at unless child.asked_at

        @silent = now >= at + PATIENCE
        at + PATIENCE
      end

      # @return [Float, nil] when to check again
      def check(child, at, text, now, late)
        return at if now < at

        ends = @late[[child, at]] = late.fetch([child, at], now + GRACE)
        return ends if now < ends

        kill(child, text)
        nil
      end

      # Its end is noticed as that of any child.
      def kill(child, text)
        return if child.killed?

        Log.line("the proxy (pid #{child.pid}) #{text}: killing it", :error)
        child.kill("it #{text}")
      end

      def seconds(time) = "#{format("%g", time)} s"
    end
  end
end
