# frozen_string_literal: true

module Fastrack
  module Tune
    # A forecast as a drawing: bars for the memory of so many workers, a line for their requests per second.
    class Chart
      WIDTH = 720
      HEIGHT = 360
      LEFT = 70
      BOTTOM = 300
      TOP = 40
      STEP = 60

      def initialize(forecast)
        @forecast = forecast
        @rows = forecast.rows.select { |row| row.threads == forecast.recommendation.threads }
        @most = [*@rows.map(&:memory), forecast.memory.bytes].max.to_f
        @fastest = @rows.map(&:rate).max
        @step = [(WIDTH - (2.0 * LEFT)) / @rows.size, STEP].min
      end

      # @return [String] SVG
      def to_s
        <<~SVG
          <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 #{WIDTH} #{HEIGHT}" font-family="sans-serif" font-size="12">
          <title>Memory and requests per second by number of workers</title>
          <rect width="#{WIDTH}" height="#{HEIGHT}" fill="white"/>
          #{[*@rows.each_with_index.map { |row, index| bar(row, index) }, limit, line, legend].join("\n")}
          </svg>
        SVG
      end

      private

      def x(index) = (LEFT + (@step * (index + 0.5))).round(1)

      def y(share) = (BOTTOM - (share * (BOTTOM - TOP))).round(1)

      def bar(row, index)
        top = y(row.memory / @most)
        colour = row == @forecast.recommendation ? "#2f7d4f" : (row.fits ? "#9ab8a5" : "#d9a19a")
        wide = (@step * 0.6).round(1)
        %(<rect x="#{(x(index) - (wide / 2)).round(1)}" y="#{top}" width="#{wide}" height="#{(BOTTOM - top).round(1)}" fill="#{colour}"/>) +
          text(x(index), BOTTOM + 18, row.workers) + text(x(index), BOTTOM - 6, "#{row.memory / 1024**2}", "white")
      end

      def limit
        at = y(@forecast.memory.bytes / @most)
        %(<line x1="#{LEFT}" x2="#{WIDTH - LEFT}" y1="#{at}" y2="#{at}" stroke="#b03a2e" stroke-dasharray="6 4"/>) +
          text(WIDTH - (LEFT / 2), at + 4, "#{@forecast.memory.bytes / 1024**2} MB", "#b03a2e")
      end

      def line
        points = @rows.each_with_index.map { |row, index| "#{x(index)},#{y(row.rate / @fastest)}" }
        %(<polyline points="#{points.join(" ")}" fill="none" stroke="#1f4e79" stroke-width="2"/>)
      end

      def legend
        text(WIDTH / 2, BOTTOM + 40, "workers; bars: memory in MB; line: requests per second, at most #{@fastest.round}")
      end

      def text(left, top, content, colour = "black")
        %(<text x="#{left}" y="#{top}" text-anchor="middle" fill="#{colour}">#{content}</text>)
      end
    end
  end
end
