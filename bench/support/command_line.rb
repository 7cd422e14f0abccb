# frozen_string_literal: true

module Bench
  # What bench/run does with its command line.
  class CommandLine
    RESULTS = File.expand_path("../results", __dir__)
    private_constant :RESULTS

    def initialize(arguments, out: $stdout, log: $stderr)
      @arguments = arguments
      @out = out
      @log = log
    end

    # @return [Integer] the exit status: 0; 1 when a target is missed; 2 when there was nothing to measure
    def run
      options = Options.new(@arguments)
      return show(options.help) if options.help?

      results = options.from ? Report::Files.read(options.from) : measure(options)
      written = Report::Files.write(results, options.out || RESULTS)
      @out.puts Report::Markdown.new(results).tables, "", "written: #{written.join(", ")}"
      options.check? ? check(results) : 0
    rescue Options::Invalid, RunningServer::Failed, Report::Files::Unreadable => error
      @log.puts "bench/run: #{error.message}"
      2
    end

    private

    def show(text)
      @out.puts text
      0
    end

    def measure(options)
      missing = Programs.missing(Workloads.named(options.workloads))
      unless missing.empty?
        raise Options::Invalid, "a program is missing; run as root: apt-get install #{missing.join(" ")}"
      end

      Campaign.new(options, log: @log).run
    end

    def check(results)
      verdicts = Targets.check(results)
      @out.puts "", verdicts
      verdicts.all?(&:reached?) ? 0 : 1
    end
  end
end
