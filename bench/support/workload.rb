# frozen_string_literal: true

require_relative "app"
require_relative "measurements/load"
require_relative "request"

module Bench
  # A workload of the servers: an app, a request, and the way from the load generator to them.
  class Workload
    # See #initialize.
    attr_reader :name, :title, :app, :request, :think_ms, :share, :stretch, :measurement, :servers, :threads

    # @param title [String] one line for the reports
    # @param app [String, App] a file of bench/apps, or more than that
    # @param front [Symbol] :nginx (unix sockets behind nginx) or :tcp (straight to the server)
    # @param servers [Array<String>] names of those that run it when none is chosen
    # @param close [Boolean] over :tcp, a new connection for each request
    # @param think_ms [Float, nil] mean milliseconds that a client waits between answer and next request
    # @param share [Float, nil] the load instead, as a share of the requests that a saturated server answers: measured before each round
    # @param stretch [Numeric] how many times as long as `--seconds` its measurements last
    # @param settings [Hash] defaults of this workload that the command line may change: `workers`, `concurrency`
    # @param threads [Integer] in each worker of a server that has several
    # @param database [Boolean] whether the app has PostgreSQL
    def initialize(name, title:, app:, front:, servers:, request: Request.new, close: true, think_ms: nil, share: nil,
                   stretch: 1, measurement: Measurements::Load.new, settings: {}, threads: 5, database: false)
      @name, @title, @front, @servers, @request, @close = name, title, front, servers, request, close
      @app = app.is_a?(String) ? App.new(app) : app
      @think_ms, @share, @stretch = think_ms, share, stretch
      @measurement, @settings, @threads, @database = measurement, settings, threads, database
    end

    # @return [Workload] this one without pauses, to measure how many requests a server answers
    def saturated = with(measurement: Measurements::Load.new, stretch: 1)

    # @param rps [Float] requests per second of a saturated server
    # @return [Workload] this one with the pauses that make its load. A client's cycle is a pause and a request, which has a worker alone
    def paced(rps, clients, workers) = with(think_ms: (1e3 * ((clients / (share * rps)) - (workers / rps))).round(1))

    # @return [Integer] loads of each server in a round, while all of them run
    def turns = @measurement.respond_to?(:turns) ? @measurement.turns : 1

    def database? = @database

    def nginx? = @front == :nginx

    # @return [Boolean] whether the connections that the server sees carry one request each
    def close? = nginx? || @close

    # @param key [Symbol] `:workers` or `:concurrency`
    # @return [Integer] the command line's choice, else this workload's, else the common one
    def setting(key, options)
      options.public_send(key) || @settings[key] || options.common(key)
    end

    # @return [Boolean] whether the clients ask for that; nginx keeps theirs, so that only the servers' side of it is new for each request
    def closes? = @close && !nginx?

    private

    def with(**fields) = dup.tap { |copy| fields.each { |name, value| copy.instance_variable_set(:"@#{name}", value) } }
  end
end
