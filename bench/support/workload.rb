# frozen_string_literal: true

require_relative "app"
require_relative "framework_app"
require_relative "measurements/load"
require_relative "request"

module Bench
  # A workload of the servers: an app, a request, and the way from the load generator to them.
  class Workload
    APPS = File.expand_path("../apps", __dir__)

    # @return [String] the name on the command line
    attr_reader :name
    # @return [String] one line for the reports
    attr_reader :title
    # @return [App]
    attr_reader :app
    # @return [Request]
    attr_reader :request
    # @return [Float, nil] mean milliseconds that a client waits between answer and next request
    attr_reader :think_ms
    # @return [Float, nil] the same as a multiple of what the app takes for a request, which is to be measured before each round
    attr_reader :think_calls
    # @return [Numeric] how many times as long as `--seconds` its measurements last
    attr_reader :stretch
    # @return [#kind, #run] see Measurements
    attr_reader :measurement
    # @return [Array<String>] names of the servers that run it when none is chosen
    attr_reader :servers

    # @param front [Symbol] :nginx (unix sockets behind nginx) or :tcp (straight to the server)
    # @param close [Boolean] over :tcp, a new connection for each request
    # @param app [String, FrameworkApp] a file of bench/apps, or an app that is no such file alone
    # @param settings [Hash] defaults of this workload that the command line may change: `workers`, `concurrency`
    # @param threads [Integer] in each worker of a server that has several
    # @param database [Boolean] whether the app has PostgreSQL
    def initialize(name, title:, app:, front:, servers:, request: Request.new, close: true, think_ms: nil, think_calls: nil,
                   stretch: 1, measurement: Measurements::Load.new, settings: {}, threads: 5, database: false)
      @name = name
      @title = title
      @app = app.is_a?(String) ? App.new(File.join(APPS, app)) : app
      @front = front
      @servers = servers
      @request = request
      @close = close
      @think_ms = think_ms
      @think_calls = think_calls
      @stretch = stretch
      @measurement = measurement
      @settings = settings
      @threads = threads
      @database = database
    end

    # @param app_ms [Float] what its app takes for a request on this machine
    # @return [Workload] this one with the pauses that make its load there
    def paced(app_ms)
      dup.tap { |paced| paced.instance_variable_set(:@think_ms, (think_calls * app_ms).round(1)) }
    end

    # @return [Integer] in each worker of a server that has several
    attr_reader :threads

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

    # @return [String] the bytes that the load generator sends each time; nginx keeps its clients'
    #   connections, so only the servers' side of it is new for each request
    def request_bytes = request.to_s(close: @close && !nginx?)
  end
end
