# frozen_string_literal: true

require_relative "../backtrace"
require_relative "../log"

module Fastrack
  # The response for an exception of the app, where the engine's plain 500 is not used.
  module ErrorPage
    # @param handler [#call, nil] the app's: |error|, |error, env| or |error, env, status|, as in Puma; returns a Rack response
    # @param development [Boolean] whether to show the backtrace
    # @return [#call, nil] takes the exception and the env, and returns a Rack response; nil: the engine's own response
    def self.for(handler, development: ENV["RACK_ENV"] == "development")
      if handler
        count = arity_of(handler)
        ->(error, env) { handler.call(*[error, env, 500].first(count)) }
      elsif development
        ->(error, _env) { backtrace(error) }
      end
    end

    # @param error [Exception]
    # @return [Array(Integer, Hash, Array<String>)] a response with the text of rack.errors, which no browser renders as HTML
    def self.backtrace(error)
      text = Backtrace.full(error)
      headers = { "content-type" => "text/plain; charset=utf-8", "x-content-type-options" => "nosniff" }
      [500, headers, ["500 Internal Server Error: the application failed\n\n", text]]
    end

    # Number of arguments of the handler; three if not fixed.
    def self.arity_of(handler)
      arity = handler.respond_to?(:arity) ? handler.arity : handler.method(:call).arity
      [1, 2].include?(arity) ? arity : 3
    end
    private_class_method :backtrace, :arity_of
  end

  # The report of an app's exception for rack.errors: request, message, and the app's frames.
  #
  # The report has no query string, which may hold secrets. The monitor and the line of RequestTimeout have none either.
  module ExceptionReport
    # Most bytes of a path and of a request id, as in RequestTimeout's line.
    LONGEST_TEXT = 200

    module_function

    # @param error [Exception]
    # @param env [Hash, nil] nil: without a request
    def write(error, env)
      text = "#{request(env)} failed: #{Backtrace.text(error)}"
      Log.report((env && env["rack.errors"]) || $stderr, text)
    end

    # Method and path as the client has sent them. The app may have changed env.
    def request(env)
      return "what runs between requests" unless env

      id = env["HTTP_X_REQUEST_ID"] || env["action_dispatch.request_id"]
      target = (env["REQUEST_URI"] || env["PATH_INFO"]).to_s.b.split("?", 2).first
      "#{printable(env["REQUEST_METHOD"])} #{printable(target)}#{" (request id #{printable(id)})" if id}"
    end

    def printable(text) = text.to_s.b[0, LONGEST_TEXT].gsub(/[^\x20-\x7e]/n) { |byte| format("\\x%02x", byte.ord) }

    private_class_method :request, :printable
  end
end
