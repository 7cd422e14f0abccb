# frozen_string_literal: true

require_relative "error"
require_relative "log"
require_relative "master/hooks"
require_relative "warm_up/client"
require_relative "warm_up/leftovers"
require_relative "warm_up/rails_app"
require_relative "warm_up/report"
require_relative "warm_up/server"

module Fastrack
  # Asks the app for pages in the process that forks the workers, so that all workers have what the requests load, compile and cache, and share
  # its memory.
  class WarmUp
    # Requests for each page in a round.
    ROUND = 10

    # Rounds at least. YJIT compiles a method at its 30th call.
    LEAST_ROUNDS = 3
    LEAST_ROUNDS_YJIT = 6

    # A round that takes more than this share of the fastest one's time is the last.
    GAIN = 0.95

    DEFAULT_HOST = "localhost"

    # What browsers accept. A block gets pages as they are.
    BROWSERS = { "Accept-Encoding" => "gzip" }.freeze

    # @param configuration [Configuration]
    # @param app [#call] loaded
    # @param limit [#call] runs a block for so many seconds: see TimeLimit#run
    def initialize(configuration, app, limit)
      @configuration = configuration
      @app = configuration.wrap(app)
      @limit = limit
      @report = Report.new
    end

    # @return [Array<#close>] objects that a forked child has to close
    def descriptors = @server ? @server.descriptors : []

    # Asks for the pages. No failure of the app is raised.
    #
    # @return [Report]
    def run
      began = now
      @server = Server.new(@configuration, @app)
      within(time) { ask_all }
    rescue SystemCallError, Error => e
      @report.broken_off = "it cannot begin: #{Error.reason(e)}"
      @report
    else
      @report
    ensure
      @report.seconds = now - began
      @report.broken_off ||= "a thread of the app goes on in native code" unless @server.nil? || @server.stop
      Leftovers.close_active_record
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # @return [Numeric] seconds
    def time
      boot = @configuration.worker_boot_timeout
      boot.positive? ? [@configuration.warm_up_time, boot / 2].min : @configuration.warm_up_time
    end

    def within(seconds, &block)
      @limit.call(seconds, &block)
    rescue TimeLimit::Interrupted => e
      @report.broken_off = e.message
    rescue TimeLimit::Unfinished
      @report.note(@asked, nil) if @asked
      @report.broken_off = "stopped after #{format("%g", seconds)} s"
    rescue StandardError, ScriptError, SystemExit => e
      # A block of the user's.
      @report.broken_off = "its block has failed: #{Error.reason(e)}"
    end

    def ask_all
      blocks, lists = @configuration.warm_up.partition(&:block)
      fixed, free = lists.partition(&:rounds)
      fixed.each { |pages| targets(pages).then { |targets| pages.rounds.times { ask(targets) } } }
      ask_until_warm(free.flat_map { |pages| targets(pages) }) if free.any?
      blocks.each { |pages| pages.block.call(client(pages)) }
    end

    # @return [Array<Array(Client, String)>]
    def targets(pages)
      client = client(pages, BROWSERS)
      (pages.paths || RailsApp.paths).map { |path| [client, path] }
    end

    def client(pages, headers = {})
      host = pages.host || @configuration.tls_domains&.first || RailsApp.host || DEFAULT_HOST
      https = pages.https.nil? ? https? : pages.https
      Client.new(@server.path, host: host, https: https, headers: { **headers, **pages.headers }, asking: method(:note_asked)) { |target, status| note(target, status) }
    end

    def https? = @configuration.force_ssl || @configuration.addresses.any?(&:tls?) || RailsApp.https?

    def note_asked(target)
      @asked = target
    end

    def note(target, status)
      @asked = nil
      @report.note(target, status)
    end

    # @return [Float] seconds
    def ask(targets)
      began = now
      targets.each { |client, path| client.get(path) unless @report.failed?(path) }
      now - began
    end

    # Asks in rounds, until a round is no faster than those before.
    def ask_until_warm(targets)
      ask(targets)
      fastest, rounds = Float::INFINITY, 0
      loop do
        took = Array.new(ROUND) { ask(targets) }.sum
        return if (rounds += 1) >= least_rounds && took > fastest * GAIN

        fastest = [fastest, took].min
      end
    end

    def least_rounds = defined?(RubyVM::YJIT.enabled?) && RubyVM::YJIT.enabled? ? LEAST_ROUNDS_YJIT : LEAST_ROUNDS
  end
end
