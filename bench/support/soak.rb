# frozen_string_literal: true

require "optparse"
require "rbconfig"
require_relative "soak/acts"
require_relative "soak/clients"
require_relative "soak/record"
require_relative "soak/server"
require_relative "soak/site"
require_relative "soak/verdict"
require_relative "soak/watch"

# A server under load, with every kind of fault and signal. The seed decides requests, faults and their times, as far as the
# machine's own pace lets it.
module Soak
  # Set when this process has mounts of its own.
  OWN_MOUNTS = "FASTRACK_SOAK_MOUNTS"

  module_function

  # @return [Integer] the exit status: 0 when all is well, 1 when something was found, 2 for a wrong command line
  def run(arguments)
    options = { seconds: 60, seed: Random.new_seed % 100_000, threads: 1 }
    parser(options).parse!(arguments)
    %i[seconds threads].each { |name| raise OptionParser::InvalidArgument, "--#{name} must be more than 0" unless options[name].positive? }

    own_mounts(options)
    soak(Site.new(options[:seed], threads: options[:threads], keep: options[:keep]), options)
  rescue OptionParser::ParseError => e
    warn "bench/soak: #{e.message}"
    2
  end

  def parser(options)
    OptionParser.new("Usage: bench/soak [options]") do |parser|
      parser.on("--seconds N", Float, "how long to go on; 60 by default") { |seconds| options[:seconds] = seconds }
      parser.on("--seed N", Integer, "settings of the server, clients and what happens; random by default") { |seed| options[:seed] = seed }
      parser.on("--threads N", Integer, "how many requests a worker has in the app at once; 1 by default") { |threads| options[:threads] = threads }
      parser.on("--acts NAMES", Array, "of: #{Acts.names.join(", ")}") { |names| options[:acts] = acts(names) }
      parser.on("--keep DIR", "keep what the server and the app have logged") { |dir| options[:keep] = File.expand_path(dir) }
    end
  end

  def acts(names)
    unknown = names - Acts.names
    unknown.empty? ? names : raise(OptionParser::InvalidArgument, unknown.join(","))
  end

  # A small disk that can be filled takes a mount, which takes root's rights. Without, the disk is not full, but gone.
  def own_mounts(options)
    return if ENV[OWN_MOUNTS] || !system("unshare", "-m", "true", err: File::NULL)

    words = options.compact.flat_map { |name, value| ["--#{name}", Array(value).join(",")] }
    exec({ OWN_MOUNTS => "yes" }, "unshare", "-m", RbConfig.ruby, $PROGRAM_NAME, *words)
  end

  def soak(site, options)
    Watch.adopt_orphans
    record = Record.new
    server = Server.new(site, record)
    puts "seed #{site.seed}, #{options[:seconds]} s: #{site.facts}"
    server.start
    watch = Watch.new(server, record)
    clients = Clients.new(site, record)
    Acts.new(server, record, options[:acts]).go_on_until(now + options[:seconds])
    clients.stop
    Verdict.new(server, watch, record).pronounce ? 0 : 1
  ensure
    clients&.stop
    watch&.stop
    server&.kill
    site.remove
  end

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
