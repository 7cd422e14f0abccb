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

    # Limits the time in a process that nothing but a signal ends.
    ALONE = ->(seconds, &block) { TimeLimit.new.run(seconds, -> {}, &block) }

    class << self
      # @return [Array<Array(WarmUpPages, String)>, nil] paths that the app has answered in generation 0; nil: none
      attr_accessor :pages
    end

    # @param configuration [Configuration]
    # @param app [#call] loaded
    # @param limit [#call] runs a block for so many seconds: see TimeLimit#run
    # @param wrapped [Boolean] whether the app is inside the middleware of a puma.rb
    def initialize(configuration, app, limit = ALONE, wrapped: false)
      @configuration = configuration
      @app = wrapped ? app : configuration.wrap(app)
      @limit = limit
      @report = Report.new
    end

    # @return [Array<#close>] objects that a forked child has to close
    def descriptors = @server ? @server.descriptors : []

    # Asks for the pages until they are warm, and closes what the app has opened. No failure of the app is raised.
    #
    # @return [Report]
    def run
      serving { ask_all }
      Leftovers.close_active_record
      WarmUp.pages = pages.reject { |_, path| @report.failed?(path) }.then { |found| found if found.any? } unless @report.broken_off
      @report
    end

    # Asks once for each page that an earlier warm-up has got.
    #
    # @return [Report]
    def run_once = serving { ask(targets(WarmUp.pages)) }

    private

    # @return [Report]
    def serving(&block)
      began = now
      @server = Server.new(@configuration, @app)
      within(time, &block)
      @report
    rescue SystemCallError, Error => e
      @report.broken_off = "it cannot begin: #{Error.reason(e)}"
      @report
    ensure
      @report.broken_off ||= "a thread of the app goes on in native code" unless @server.nil? || @server.stop
      @report.seconds = now - began
    end

    # @return [Array<Array(WarmUpPages, String)>]
    def pages = @pages ||= @configuration.warm_up.reject(&:block).flat_map { |pages| (pages.paths || RailsApp.paths).map { |path| [pages, path] } }

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
      # Of the user's block, or of a Rails app without routes.
      @report.broken_off = "it has failed: #{Error.reason(e)}"
    end

    def ask_all
      fixed, free = pages.partition { |pages, _| pages.rounds }
      fixed.group_by(&:first).each { |pages, found| targets(found).then { |targets| pages.rounds.times { ask(targets) } } }
      ask_until_warm(targets(free)) if free.any?
      @configuration.warm_up.select(&:block).each { |pages| pages.block.call(client(pages)) }
    end

    # @return [Array<Array(Client, String)>]
    def targets(found) = found.map { |pages, path| [client(pages, BROWSERS), path] }

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
