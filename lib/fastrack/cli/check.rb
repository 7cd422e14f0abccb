# frozen_string_literal: true

require_relative "../configuration"
require_relative "../error"
require_relative "../process/settings"

module Fastrack
  # `fastrack check`: goes as far as a start without listening anywhere, so that it can be run beside the server.
  class Check
    # @param app [AppFile]
    # @param options see Configuration
    # @param overrides see Configuration
    def initialize(app, options, overrides)
      @app = app
      @options = options
      @overrides = overrides
    end

    # @return [Integer] 0 when all is in order, 1 when not, which stderr says
    # @raise [Error]
    def run
      configuration = Configuration.new(@options, overrides: @overrides)
      ProcessSettings.new(configuration).enter
      puts "configuration: #{configuration.max_workers} workers at #{configuration.addresses.join(", ")}"
      require_relative "../native"
      load_app(configuration)
      puts "app: loaded"
      shortage = ProcessSettings.shortage
      puts shortage if shortage
      0
    end

    private

    def load_app(configuration)
      @app.load(default_middleware: configuration.default_middleware)
    rescue Error
      raise
    rescue StandardError, ScriptError => e
      raise Error, "the app does not load: #{e.full_message(highlight: false, order: :top)}".chomp
    end
  end
end
