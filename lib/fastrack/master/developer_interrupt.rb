# frozen_string_literal: true

require_relative "../process/settings"

module Fastrack
  # INT in development while workers have requests. A terminal sends it to all of its processes, and a debugger in a worker (`debugger`,
  # `binding.irb`) takes it at its prompt, for a line that is not to be. Then it is not for the server.
  class DeveloperInterrupt
    # Seconds that a debugger gets to be at its prompt again; where none was seen there at first, it may just have left it.
    PAUSE = 0.5
    SHORT_PAUSE = 0.3

    # Seconds that workers get to answer. One that does not is in no debugger: it hangs in native code.
    PATIENCE = 3

    # @return [Float, nil] monotonic seconds when #step has something to do
    attr_reader :due_at

    # @param workers [Workers]
    # @param ends [#call] ends the server
    def initialize(workers, ends)
      @workers = workers
      @ends = ends
      @asked = nil
    end

    # @param now [Float] monotonic seconds
    def begin(now)
      return if @due_at

      @edited = ProcessSettings.line_edited?
      @due_at = now + (@edited ? PAUSE : SHORT_PAUSE)
    end

    # @param now [Float] monotonic seconds
    def step(now)
      return if @due_at.nil?
      return (ask(now) if now >= @due_at) unless @asked

      answers = @asked.map(&:interrupt_taken)
      # Whatever has its own handler for INT may also keep that after its prompt. Whoever had one may have gone on, and be done.
      taken = answers.include?(true) ? @edited || ProcessSettings.line_edited? : answers.empty? && @edited
      return unless taken || answers.none?(&:nil?) || now >= @due_at

      @due_at = @asked = nil
      @ends.call unless taken
    end

    private

    def ask(now)
      @asked = @workers.each.select(&:busy?).each(&:ask_for_interrupt)
      @due_at = now + PATIENCE
      step(now)
    end
  end
end
