# frozen_string_literal: true

require "rack"
require_relative "../error"

module Fastrack
  # An app that is still a file: config.ru, or Ruby whose last constant it is, as Rack::Builder reads it.
  class AppFile
    # What rackup puts in front of an app in each environment; in others, production among them, nothing.
    MIDDLEWARE = {
      "development" => %i[CommonLogger ShowExceptions Lint TempfileReaper],
      "deployment" => %i[CommonLogger TempfileReaper]
    }.freeze

    # @param path [String]
    # @param environment [String] "development", "production"
    def initialize(path, environment)
      @path = path
      @environment = environment
    end

    # Loads it, anew each time.
    #
    # @param default_middleware [Boolean] whether to put around it what rackup would
    # @return [#call]
    # @raise [Error] when there is no such file, or no app in it; whatever the file raises
    def load(default_middleware: true)
      file = File.expand_path(@path)
      raise Error, "there is no #{file}" unless File.file?(file)

      # Rack 2 gives the options in the file as well.
      app = Rack::Builder.parse_file(file)
      app = app.first if app.is_a?(Array)
      raise Error, "#{file} gives no app, but #{app.inspect[0, 200]}" unless app.respond_to?(:call)

      names = default_middleware ? MIDDLEWARE.fetch(@environment, []) : []
      names.reverse.inject(app) do |inner, name|
        Rack.const_get(name).new(inner, *arguments(name))
      end
    end

    private

    def arguments(name)
      name == :CommonLogger ? [$stderr] : []
    end
  end
end
