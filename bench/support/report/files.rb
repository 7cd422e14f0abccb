# frozen_string_literal: true

require "fileutils"
require "json"
require_relative "markdown"
require_relative "chart"

module Bench
  module Report
    # The three forms of a run's results: JSON with everything, tables for people, a chart.
    module Files
      # @param results [Hash] as Campaign gives them
      # @param dir [String] made when it is not there; an earlier run of the same lane is replaced
      # @return [Array<String>] the paths written
      def self.write(results, dir)
        FileUtils.mkdir_p(dir)
        lane = results["lane"]
        {
          "#{lane}.json" => "#{JSON.pretty_generate(results)}\n",
          "#{lane}.md" => Markdown.new(results).document,
          "#{lane}.svg" => Chart.new(results).svg
        }.map do |name, text|
          File.join(dir, name).tap { |path| File.write(path, text) }
        end
      end

    end
  end
end
