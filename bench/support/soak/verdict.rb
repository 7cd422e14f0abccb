# frozen_string_literal: true

require_relative "../process_tree"
require_relative "processes"

module Soak
  # The verdict: whether each request was answered that no act excuses, and whether anything is left over.
  class Verdict
    # Seconds that the server gets to let go of what its clients had.
    SETTLING = 30
    # Seconds for which it is left alone, and that it may compute meanwhile.
    IDLE = 3
    IDLE_CPU = 0.5

    # Lines that no act explains.
    BAD_LINES = [/panicked/, /\bfastrack: (?:internal error|bug)/i, /^soak: mixed up/, %r{#{Site::ROOT}/lib/\S+: warning:}].freeze

    def initialize(server, watch, record)
      @server = server
      @watch = watch
      @record = record
    end

    # @return [Boolean] whether the server has stood all that was done to it
    def pronounce
      look_while_it_runs if @server.await_order("everything")
      @watch.stop
      end_it
      @watch.growth.each { |text| @record.finding(text) }
      bad_lines.each { |line| @record.finding("in the log: #{line}") }
      report
    end

    private

    def look_while_it_runs
      # Not how many workers there are: these requests may have one recycled.
      20.times { @record.finding("it does not answer in the end") unless @server.answers? }
      Bench.await(SETTLING, step: 0.2) { @watch.leaks.empty? } || @watch.leaks.each { |text| @record.finding(text) }
      used = cpu_while_idle
      @record.finding("it takes #{used.round(2)} s of CPU time in #{IDLE} s with nothing to do") if used > IDLE_CPU
    end

    def cpu_while_idle
      tree = Bench::ProcessTree.new([@server.master])
      before = tree.cpu_ns
      sleep IDLE
      (tree.cpu_ns - before) / 1e9
    end

    def end_it
      status = @server.end_by(:TERM) or return
      @record.finding("it ends with #{status.inspect}") unless status.exitstatus&.zero?
      %w[app.sock server.pid server.pid.oldbin].each do |name|
        @record.finding("it leaves #{name} behind") if File.exist?(@server.site.path(name))
      end
    end

    def bad_lines
      @server.log.lines(chomp: true).select { |line| BAD_LINES.any? { |bad| line.match?(bad) } }.uniq.first(10)
    end

    def report
      failures = @record.unexcused
      excused = @record.excused.map { |failure, excuse| "#{excuse.what}: #{failure.kind}" }.tally
      puts "", "answered: #{list(@record.answered)}", "done: #{list(@record.done)}", "excused: #{list(excused)}", @watch.memory_facts
      puts "unusual lines of the log:", unusual_lines
      puts "failed requests that nothing excuses:", failures.first(40) if failures.any?
      puts "found:", @record.findings if @record.findings.any?
      stood = failures.empty? && @record.findings.empty?
      puts "verdict: #{stood ? "stood" : "FAILED"}, #{@record.answered.values.sum} requests answered as they should be, " \
           "#{@record.done.values.sum} acts, #{excused.values.sum} failures excused, #{failures.size} not, #{@record.findings.size} other findings"
      stood
    end

    def list(counts)
      counts.sort_by(&:last).reverse.map { |name, count| "#{name} #{count}" }.join(", ")
    end

    # The server's own lines, without what differs from time to time.
    def unusual_lines
      own = @server.log.lines(chomp: true).filter_map { |line| line[/\A(?:\S+Z \d+ [A-Z]+ )?(fastrack: .*)/, 1] }
      lines = own.map { |line| line.gsub(/\d+(?:\.\d+)?/, "N")[0, 160] }
      lines.tally.sort_by(&:last).map { |line, count| "#{count.to_s.rjust(7)} #{line}" }.reverse.first(60)
    end
  end
end
