# frozen_string_literal: true

require "optparse"

module Bench
  # The command line of bench/run.
  class Options
    # A command line that cannot be run; the message is one line for the user.
    class Invalid < StandardError; end

    COMMON = { rounds: 5, seconds: 5.0, warm_up: 1.0, workers: 2, concurrency: 32, scale: 1.0 }.freeze
    # Enough to see that everything works; far too short for a figure that means something.
    QUICK = { rounds: 1, seconds: 0.3, warm_up: 0.1, scale: 0.01 }.freeze
    private_constant :COMMON, :QUICK

    # @return [Integer, nil] what the command line chose for every workload
    attr_reader :workers, :concurrency
    # @return [Array<String>] names of workloads; empty: the default ones
    attr_reader :workloads
    # @return [Array<String>] names of servers; empty: each workload's own choice
    attr_reader :servers
    attr_reader :lane
    # @return [String, nil] a directory for the reports
    attr_reader :out

    def initialize(arguments)
      @chosen = {}
      @workloads = []
      @servers = []
      @lane = "system"
      rest = parser.parse(arguments)
      raise Invalid, "unknown argument #{rest.first}" unless rest.empty?

      refuse_nothing
    rescue OptionParser::ParseError => error
      raise Invalid, error.message
    end

    # @return [Integer, Float] a setting that no workload and no option has changed: `:rounds`, `:seconds` and
    #   `:warm_up` of one measurement, `:workers`, `:concurrency` (connections), `:scale` (of numbers of requests)
    def common(key) = @chosen.fetch(key) { (quick? ? COMMON.merge(QUICK) : COMMON).fetch(key) }

    def quick? = @quick == true
    def check? = @check == true
    def help? = @help == true

    def help = parser.help

    private

    def parser
      OptionParser.new("Usage: bench/run [options]") do |parser|
        what_to_run(parser)
        how_long(parser)
        where_to(parser)
      end
    end

    def what_to_run(parser)
      parser.on("--workload NAMES", Array, "of: #{Workloads.names.join(", ")}") { |names| @workloads.concat(names) }
      parser.on("--server NAMES", Array, "of: #{Servers::NAMES.join(", ")}") { |names| @servers.concat(names) }
      parser.on("--lane NAME", Lane::NAMES, "of: #{Lane::NAMES.join(", ")}") { |name| @lane = name }
      parser.on("--workers N", Integer, "processes of each server") { |number| @workers = number }
      parser.on("--concurrency N", Integer, "connections of the load generator") { |number| @concurrency = number }
    end

    def how_long(parser)
      parser.on("--rounds N", Integer, "every server in turn, so many times") { |number| @chosen[:rounds] = number }
      parser.on("--seconds N", Float, "of load for each measurement") { |number| @chosen[:seconds] = number }
      parser.on("--quick", "see that everything works; no figure means anything") { @quick = true }
    end

    def where_to(parser)
      parser.on("--out DIR", "for LANE.json, LANE.md and LANE.svg; bench/results by default") { |dir| @out = dir }
      parser.on("--check", "exit 1 when a target is missed") { @check = true }
      parser.on("-h", "--help") { @help = true }
    end

    def refuse_nothing
      numbers = { rounds: common(:rounds), seconds: common(:seconds), workers: @workers, concurrency: @concurrency }
      numbers.compact.each do |name, number|
        raise Invalid, "--#{name} #{number}: it must be more than 0" unless number.positive?
      end
    end
  end
end
