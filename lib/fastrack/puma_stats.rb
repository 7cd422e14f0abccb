# frozen_string_literal: true

require "json"
require_relative "puma/stats"

# Puma.stats and Puma.stats_hash for integrations and dashboards that read them, in each process of the server:
#
#   gem "rhebok-rs", require: "fastrack/puma_stats"
module Puma
  # Puma's own methods, where Puma is in the bundle, ask this object, too.
  @get_stats = Fastrack::PumaStats

  unless respond_to?(:stats_hash)
    class << self
      # @return [Hash{Symbol => Object}] see Puma's docs/stats.md, cluster mode
      def stats_hash = @get_stats.stats

      # @return [String] the same as JSON
      def stats = JSON.generate(stats_hash)
    end
  end
end
