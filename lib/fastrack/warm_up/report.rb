# frozen_string_literal: true

require_relative "../log"
require_relative "../text"

module Fastrack
  class WarmUp
    # What the app has answered, for the log.
    class Report
      # Most targets that a line names.
      MOST_NAMED = 3

      # @return [Float] seconds that the warm-up has taken
      attr_accessor :seconds

      # @return [String, nil] why the warm-up has ended early
      attr_accessor :broken_off

      # @return [Integer] requests
      attr_reader :requests

      def initialize
        @answers = Hash.new { |answers, target| answers[target] = Hash.new(0) }
        @requests = 0
        @seconds = 0.0
      end

      # @param target [String] that was asked for
      # @param status [Integer, nil] nil: the app has not answered
      def note(target, status)
        @requests += 1
        @answers[target][status] += 1
      end

      # @return [Boolean] whether the app has failed to answer a target
      def failed?(target) = @answers[target].keys.any? { |status| failure?(status) }

      # @return [String, nil] what makes a warm-up that is required fail
      def failure
        failed = odd.select { |status, _| failure?(status) }
        parts = [*failed.map { |status, answers| told(status, answers) }, *@broken_off]
        "warm-up: #{parts.join(", ")}" if parts.any?
      end

      # @return [String] for the log
      def line
        parts = ["#{Log.count(@answers.size, "path")}, #{Log.count(@requests, "request")} in #{format("%.1f", @seconds)} s"]
        parts.concat(odd.map { |status, answers| told(status, answers) })
        "warm-up: #{[*parts, *@broken_off].join(", ")}"
      end

      # @return [Symbol] of the line
      def level = odd.any? || @broken_off ? :warn : :info

      private

      def failure?(status) = status.nil? || status >= 500

      # @return [Array<Array(Integer, Hash{String => Integer})>] answers that are no pages, by status
      def odd
        all = @answers.flat_map { |target, counts| counts.map { |status, count| [status, target, count] } }
        all = all.reject { |status, _, _| status&.between?(200, 299) }
        all.group_by(&:first).map { |status, found| [status, found.to_h { |_, target, count| [target, count] }] }
      end

      def told(status, answers)
        named = answers.keys.first(MOST_NAMED).map { |target| Text.printable(target) }
        named << "..." if answers.size > MOST_NAMED
        "#{answers.values.sum} #{status ? "answered #{status}" : "had no answer"} (#{named.join(", ")})"
      end
    end
  end
end
