# frozen_string_literal: true

module Bench
  # Medians and ratios of the rounds' measurements.
  module Statistics
    # @return [Numeric, nil] the middle one, or the mean of the middle two; nil when there is no number
    def self.median(numbers)
      sorted = numbers.compact.sort
      return nil if sorted.empty?

      middle = sorted.size / 2
      sorted.size.odd? ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0
    end

    # @return [Numeric, nil] the nearest rank: the least number that so many per cent of them do not exceed
    def self.percentile(sorted, percent)
      sorted[[(sorted.size * percent / 100.0).ceil, 1].max - 1]
    end

    # @return [Float, nil] nil where there is nothing to compare
    def self.ratio(value, reference)
      value.fdiv(reference).round(3) if value && reference&.positive?
    end

    # @param rounds [Array<Hash, nil>] measurements by name; nil for a round in which the server failed
    # @return [Hash] the median of each measurement; `errors` are added up; who was served every second is
    #   told of the worst round, which a median would hide
    def self.medians(rounds)
      there = rounds.compact
      names = there.flat_map(&:keys).uniq
      result = names.to_h { |name| [name, median(there.map { |round| round[name] })] }
      result.merge(least_served(there), "errors" => there.sum { |round| round["errors"] })
    end

    def self.least_served(rounds)
      counted = rounds.select { |round| round["clients_served"] }
      return {} if counted.empty?

      worst = counted.max_by { |round| [round["clients"] - round["clients_served"], round["clients"]] }
      worst.slice("clients", "clients_served").merge("longest_gap_ms" => counted.map { |round| round["longest_gap_ms"] }.max)
    end
    private_class_method :least_served

    # The median of the ratios of each round, not the ratio of the medians: both of a round's measurements were made
    # within the same minute, so that what slows the machine down meanwhile is in both.
    #
    # @param rounds [Array<Hash, nil>] measurements of a server
    # @param others [Array<Hash, nil>] of the one to compare it with, in the same order
    # @return [Hash{String => Float}] by measurement
    def self.ratios(rounds, others)
      rounds.compact.flat_map(&:keys).uniq.to_h { |name| [name, median(paired_ratios(name, rounds, others))] }.compact
    end

    def self.paired_ratios(name, rounds, others)
      rounds.zip(others).filter_map do |round, other|
        mine = round&.fetch(name, nil)
        its = other&.fetch(name, nil)
        mine.fdiv(its) if mine && its&.positive?
      end
    end
    private_class_method :paired_ratios
  end
end
