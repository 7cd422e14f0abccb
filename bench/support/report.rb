# frozen_string_literal: true

require "fileutils"
require "json"
require_relative "report/chart"
require_relative "report/markdown"

module Bench
  # The three forms of a run's results: JSON with everything, tables for people, a chart.
  module Report
    # @param dir [String] made when it is not there; an earlier run of the same lane is replaced
    # @return [Array<String>] the paths written
    def self.write(results, dir)
      FileUtils.mkdir_p(dir)
      texts = { "json" => "#{JSON.pretty_generate(results)}\n", "md" => Markdown.new(results).document, "svg" => Chart.new(results).svg }
      texts.map { |ending, text| File.join(dir, "#{results["lane"]}.#{ending}").tap { |path| File.write(path, text) } }
    end
  end
end
