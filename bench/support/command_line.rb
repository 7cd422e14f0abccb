# frozen_string_literal: true

module Bench
  # Runs bench/run's command line.
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

      results = measure(options)
      written = Report.write(results, options.out || RESULTS)
      @out.puts Report::Markdown.new(results).tables, "", "written: #{written.join(", ")}"
      options.check? ? check(results) : 0
    rescue Options::Invalid, RunningServer::Failed => error
      @log.puts "bench/run: #{error.message}"
      2
    end

    private

    def show(text)
      @out.puts text
      0
    end

    def measure(options)
      workloads = Workloads.named(options.workloads)
      nginx = workloads.any? { |workload| workload.nginx? || workload.servers.include?("nginx") }
      raise Options::Invalid, "nginx is missing; run as root: apt-get install nginx-light" if nginx && !Machine.nginx

      refuse_missing_features(workloads, Lane.new(options.lane))
      Campaign.new(options, log: @log).run
    end

    # Better at once than after the workloads that go before.
    def refuse_missing_features(workloads, lane)
      needed = workloads.flat_map { |workload| workload.app.features }.uniq
      missing = needed.empty? ? [] : lane.missing(needed)
      missing << "PostgreSQL" if workloads.any?(&:database?) && !Database.here?(lane)
      return if missing.empty?

      raise Options::Invalid, "the lane #{lane.name} has no #{missing.join(", ")}; --lane #{missing.include?("roda") ? "rack32" : "rack3"} has everything, here it takes (as root): " \
                              "apt-get install rails ruby-pg postgresql"
    end

    def check(results)
      verdicts = Targets.check(results)
      @out.puts "", verdicts
      verdicts.all?(&:reached?) ? 0 : 1
    end
  end
end
