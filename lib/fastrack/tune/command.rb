# frozen_string_literal: true

require "optparse"
require_relative "../cli/help"
require_relative "../configuration/options"
require_relative "../error"
require_relative "../memory/limit"
require_relative "../process/cpus"
require_relative "../text"
require_relative "report"
require_relative "trial"

module Fastrack
  module Tune
    # `fastrack tune`: measures memory and CPU time of the app's workers, and advises a number of workers.
    class Command
      USAGE = <<~TEXT
        Usage: fastrack tune [options] [config.ru]

        Boots the app on a free loopback port, sends GET requests to it, and measures
        memory and CPU time per worker. Prints the figures and a number of workers.

      TEXT

      # @param arguments [Array<String>]
      # @return [Integer] the exit status
      # @raise [Error]
      def self.run(arguments, output: $stdout, progress: $stderr) = new(arguments).run(output, progress)

      def initialize(arguments)
        @options = { paths: ["/"], seconds: 10.0, threads: 1 }
        # The parser adds each option's value under its long name.
        rest = parser.parse(arguments.map(&:b), into: @options)
        @app_file = rest.shift
        raise Error, "only one app: #{Text.utf8(rest.join(" "))} is not expected" unless rest.empty?
      rescue OptionParser::ParseError => e
        raise Error, Text.utf8(e.message)
      end

      def run(output, progress)
        return output.puts(parser.help) || 0 if @options[:help]
        raise Error, "tune needs /proc: it runs on Linux only" unless ProcessMemory.known?

        progress.puts("measuring for some #{(counts.size * @options[:seconds] * (1 + Trial::WARM_UP)).ceil} s") if progress.tty?
        report = Report.new(measured, memory: memory, cpus: @options[:cpus] || CPUs.new.capacity)
        output.puts(@options[:json] ? report.json : report.text)
        0
      end

      def parser
        @parser ||= Help::Options.new(USAGE) do |options|
          add_machine(options)
          add_load(options)
          options.on("--json", "print JSON")
          options.on("-h", "--help", "show this help")
        end
      end

      private

      def add_machine(options)
        options.on("--memory SIZE", "available memory, such as 512M (default: the cgroup's limit, or the machine's memory)") do |text|
          Option::Types.size(text) or raise Error, "--memory must be more than 0"
        rescue ArgumentError => e
          raise Error, "--memory #{e.message}; got #{Text.utf8(text).inspect}"
        end
        options.on("--cpus NUMBER", Float, "CPUs (default: those that this process may use)") { |number| positive(number, "--cpus") }
      end

      def add_load(options)
        options.on("--paths LIST", "paths to request, separated by commas, or a file with one per line (default: /)") do |text|
          list = text.start_with?("/") && !File.file?(text) ? text.split(",") : File.binread(text).lines(chomp: true).grep(%r{\A/})
          list.empty? ? raise(Error, "--paths: #{Text.utf8(text)} has no path in it") : list.map { |path| Text.utf8(path).scrub }
        rescue SystemCallError => e
          raise Error, "--paths: #{Text.utf8(e.message)}"
        end
        options.on("--threads NUMBER", Integer, "also try this number of threads per worker; the app must be thread-safe") { |number| number.clamp(1, Option::MOST_THREADS) }
        options.on("--seconds NUMBER", Float, "how long to measure (default: 10)") { |number| positive(number, "--seconds") }
        options.on("-c", "--config FILE", "configuration file (default: config/fastrack.rb, if it exists)")
        options.on("-e", "-E", "--environment NAME", "environment (default: RACK_ENV, RAILS_ENV or production)")
      end

      def positive(number, name) = number.positive? ? number : raise(Error, "#{name} must be more than 0")

      def counts = [1, @options[:threads]].uniq

      # @return [Hash{Integer => Trial::Result}] by the number of threads per worker
      def measured = counts.to_h { |threads| [threads, Trial.new(threads: threads, **trial_options).run] }

      def trial_options
        environment = @options[:environment] || ENV["RACK_ENV"] || ENV["RAILS_ENV"] || "production"
        { app_file: @app_file, config: @options[:config], environment: environment, paths: @options[:paths], seconds: @options[:seconds] }
      end

      # @return [MemoryLimit]
      def memory
        given = @options[:memory]
        return MemoryLimit::CgroupLimit.find || MemoryLimit::MachineLimit.new unless given

        share = MemoryLimit::SHARE
        MemoryLimit.new((given * share).to_i, "#{(share * 100).round} % of #{ProcessMemory.format(given)}")
      end
    end
  end
end
