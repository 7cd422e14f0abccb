# frozen_string_literal: true

require_relative "../error"
require_relative "../process/proc_stat"
require_relative "log_tail"

module Fastrack
  # What comes of a HUP, a USR2 or a URG: whether the new workers, or the new master, serve. It looks at the processes (proc(5)) and at what the
  # server logs meanwhile, where that goes to a file.
  class Outcome
    WORKER = /\Afastrack worker\[/.freeze
    MASTER = /\Afastrack master/.freeze

    # What the log says.
    READY = /Fastrack is ready Workers:|the new master \(pid \d+\) is ready/.freeze
    FAILED = /HUP changes nothing: |(?:HUP|USR2) is ignored: |refork: (?:nothing happens|given up): |cannot start a new master|this one carries on|the new one does not boot/.freeze

    # Seconds between two looks.
    PAUSE = 0.1

    # After this number of looks without a new master, or of workers that have gone, it is no accident.
    TIMES = 3

    # Seconds in which a master that is not stuck in a hook has begun.
    PATIENCE = 15

    # `started` is the process's, in ticks after the machine's: with the pid it names one process for ever.
    Row = Struct.new(:pid, :parent, :command, :started)

    # Made before the signal is sent.
    #
    # @param pid [Integer] the master's
    # @param signal [String] HUP or USR2
    # @param limit [Float] seconds to wait; 0: for ever
    def initialize(pid, signal, limit)
      @pid = pid
      @signal = signal
      @limit = limit
      @started = now
      rows = list
      @known = rows.map(&:pid)
      @old = workers(rows)
      @log = LogTail.new(pid)
      @commands = []
      @family = []
      @seen = []
      @missing = 0
    end

    # @return [Boolean] whether there is a /proc to look at
    def visible? = @known.include?(@pid)

    # Waits for it.
    #
    # @return [Float] seconds until all was ready
    # @raise [Error] with what the log says
    def await
      loop do
        sleep(PAUSE)
        case verdict
        when :ready then return now - @started
        when :failed then raise Error, complaint("the old code serves on")
        when :gone then raise Error, complaint("the server is gone")
        end
        raise Error, complaint("it #{late} after #{@limit.round} s") if @limit.positive? && now - @started > @limit
      end
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def verdict
      return :failed if @log.lines.grep(FAILED).any?
      return :ready if @log.lines.grep(READY).any?

      @signal == "USR2" ? restarted(list) : reloaded(list)
    end

    def late = "is not ready"

    # A worker goes when its successor is ready.
    def reloaded(rows)
      return :gone unless rows.any? { |one| one.pid == @pid }

      present = workers(rows)
      @seen |= present - @old
      # The first worker that a refork begins with is also replaced in the end.
      return if @signal == "URG" && @log.any?
      return :ready if (@old & present).empty? && @seen.any?

      :failed if @signal == "HUP" && (@seen - present).size >= TIMES
    end

    # The old master goes when the new one is ready. That is its child at first; with rackup's --daemonize a child of that goes on.
    def restarted(rows)
      fresh = rows.reject { |one| @known.include?(one.pid) || one.command.empty? || one.command.match?(WORKER) }
      @commands |= fresh.select { |one| one.parent == @pid }.map(&:command)
      # A master's title is another command. Those of other servers may also be new.
      @family |= fresh.select { |one| [@pid, *@family].include?(one.parent) || @commands.include?(one.command) }.map(&:pid)
      new = fresh.select { |one| @family.include?(one.pid) }
      return new.any? { |one| one.command.match?(MASTER) } ? :ready : :gone unless rows.any? { |one| one.pid == @pid }

      @missing = new.any? ? 0 : @missing + 1
      :failed if @missing >= (@commands.any? ? TIMES : PATIENCE / PAUSE)
    end

    # @return [String]
    def complaint(what)
      # Not the backtraces: what they are of comes first.
      lines = @log.lines.grep_v(/\A\s+from /).last(20)
      said = lines.empty? ? ". Its log says why" : ". From its log:\n#{lines.map { |line| "  #{line}" }.join("\n")}"
      "#{@signal} has failed: #{what} (pid #{@pid})#{said}"
    end

    # @return [Array<Integer>]
    def workers(rows)
      rows.select { |one| one.parent == @pid && one.command.match?(WORKER) }.map(&:pid)
    end

    def list
      ProcStat.all.filter_map do |pid, fields|
        # A zombie has ended.
        Row.new(pid, fields[1].to_i, File.binread("/proc/#{pid}/cmdline"), fields[19]) unless fields.first == "Z"
      rescue SystemCallError
        nil
      end
    rescue SystemCallError
      # There is no /proc.
      []
    end
  end
end
