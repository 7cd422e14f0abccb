# frozen_string_literal: true

require_relative "outcome"

module Fastrack
  # What comes of a TERM: whether all processes of the server end.
  class StopOutcome < Outcome
    CHILD = /\Afastrack (?:worker|mold)/.freeze

    # Made before the signal is sent.
    #
    # @param pid [Integer] the master's
    # @param limit [Float] seconds that the server allows itself
    # @param answers [Boolean] whether its monitor has told the pid, which may be one of another container's
    # @yieldreturn [Boolean] whether it still runs; asked where /proc does not show it
    def initialize(pid, limit, answers:, &running)
      # Killed workers, hooks and at_exit blocks may take 5 s when the server's own time is over.
      super(pid, "TERM", limit + 5)
      @running = running
      rows = list
      master = rows.find { |one| one.pid == pid }
      master = nil if answers && !master&.command&.match?(MASTER)
      # After USR2 the old master, which is this one's parent, finishes its requests.
      old = master && rows.find { |one| one.pid == master.parent && one.command.match?(MASTER) }
      @family = [master, old].compact
    end

    private

    def verdict
      return (:ready unless @running.call) if @family.empty?

      :ready if left.empty?
    end

    # @return [Array<Row>] its processes that have not ended
    def left
      rows = list
      pids = @family.map(&:pid)
      @family |= rows.select { |one| pids.include?(one.parent) && (one.command.match?(CHILD) || master?(one, rows)) }
      known = @family.map { |one| [one.pid, one.started] }
      rows.select { |one| known.include?([one.pid, one.started]) }
    end

    # Whether it is a new master. What the app has forked has the same title, but no workers.
    def master?(row, rows)
      row.command.match?(MASTER) && rows.any? { |one| one.parent == row.pid && one.command.match?(WORKER) }
    end

    def late
      names = left.map { |one| "#{one.command[/\Afastrack [^\0]*/] || "master"}, pid #{one.pid}" }
      "still runs#{" (#{names.join("; ")})" if names.any?}"
    end
  end
end
