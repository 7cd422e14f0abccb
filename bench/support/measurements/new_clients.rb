# frozen_string_literal: true

module Bench
  module Measurements
    # Clients that connect anew for each request, apart from those that keep their connections.
    module NewClients
      PERCENTILES = %w[p50 p95 p99].freeze
      private_constant :PERCENTILES

      # @param load [Hash] what ClosedLoop gave, with clients of both kinds
      # @return [Hash{String => Numeric, nil}] `pN_kept_ms`, `pN_new_ms`, and the latter as a multiple of the former,
      #   `pN_new_to_kept`; `longest_new_ms`, which a client without an answer has too, and `longest_new_to_kept`, as a
      #   multiple of the median of the kept ones. nil where there was no request
      def self.figures(load)
        kept, new = load.values_at(:kept, :new).map { |group| milliseconds(group) }
        longest = [load[:new][:max_us], load[:new][:longest_gap_us]].max / 1e3
        PERCENTILES.each_with_object({}) do |name, figures|
          figures.merge!("#{name}_kept_ms" => kept[name], "#{name}_new_ms" => new[name],
                         "#{name}_new_to_kept" => ratio(new[name], kept[name]))
        end.merge("longest_new_ms" => longest, "longest_new_to_kept" => ratio(longest, kept["p50"]))
      end

      def self.milliseconds(group)
        PERCENTILES.to_h { |name| [name, group[:requests].zero? ? nil : group[:"#{name}_us"] / 1e3] }
      end

      def self.ratio(value, reference)
        value.fdiv(reference).round(3) if value && reference&.positive?
      end
      private_class_method :milliseconds, :ratio
    end
  end
end
