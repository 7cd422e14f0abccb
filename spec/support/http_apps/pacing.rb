# frozen_string_literal: true

require_relative "../http_journal"

module HttpApps
  # Large and endless responses, failing ones, and a background thread whose progress shows who holds the GVL.
  class Pacing
    LARGE = 20 * 1024 * 1024
    PART = 1024 * 1024

    # Yields a large body, and notes how often the background thread ran in the meantime.
    Watched = Struct.new(:journal, :name, :parts) do
      def each(&block)
        @before = Pacing.ticks
        parts.call(block)
      end

      def close = journal.write("#{name} ticks #{Pacing.ticks - @before.to_i}")
    end

    class << self
      def ticks
        @thread ||= Thread.new { loop { sleep(0.002) && tick } }
        @ticks
      end

      def gap = [@gap, now - @last].max.tap { @gap = 0 }

      private

      def tick
        @ticks += 1
        @gap = [@gap, now - @last].max
        @last = now
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
    @ticks = 0
    @gap = 0
    @last = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def initialize = @journal = HttpJournal.new

    def call(env)
      Pacing.ticks
      case path = env["PATH_INFO"]
      when "/gap" then answer([Pacing.gap.to_s])
      when "/large" then answer(["l" * LARGE])
      when "/watched" then answer(Watched.new(@journal, "watched", ->(take) { take.call("l" * LARGE) }))
      when "/parts" then answer(Watched.new(@journal, "parts", ->(take) { (LARGE / PART).times { take.call("p" * PART) } }))
      when %r{\A/half} then half(path)
      else answer([Process.pid.to_s])
      end
    end

    private

    def answer(body, headers = {}) = [200, { "content-type" => "text/plain" }.merge(headers), body]

    # Half of a response of 20 bytes, and then trouble.
    def half(path)
      each = lambda do |take|
        take.call("0123456789")
        raise path.end_with?("grave") ? NotImplementedError : RuntimeError, "in the middle"
      end
      body = path.include?("stream") ? ->(stream) { each.call(stream.method(:write)) } : Watched.new(@journal, "half", each)
      answer(body, path.include?("length") ? { "Content-Length" => "20" } : {})
    end
  end
end
