# frozen_string_literal: true

require_relative "../backtrace"
require_relative "../log"

module Fastrack
  # The response when the app raises, if it is not to be the engine's plain 500.
  module ErrorPage
    # @param handler [#call, nil] the app's: |error|, |error, env| or |error, env, status|, as in Puma; returns a Rack response
    # @param development [Boolean] whether to show the backtrace
    # @return [#call, nil] takes the exception and the env, and returns a Rack response; nil: the engine's own
    def self.for(handler, development: ENV["RACK_ENV"] == "development")
      if handler
        count = arity_of(handler)
        ->(error, env) { handler.call(*[error, env, 500].first(count)) }
      elsif development
        ->(error, _env) { backtrace(error) }
      end
    end

    # @param error [Exception]
    # @return [Array(Integer, Hash, Array<String>)] what rack.errors also gets; as text that no browser renders as HTML
    def self.backtrace(error)
      text = Backtrace.full(error)
      headers = { "content-type" => "text/plain; charset=utf-8", "x-content-type-options" => "nosniff" }
      [500, headers, ["500 Internal Server Error: the application failed\n\n", text]]
    end

    # How many arguments it takes; three if that is not fixed.
    def self.arity_of(handler)
      arity = handler.respond_to?(:arity) ? handler.arity : handler.method(:call).arity
      [1, 2].include?(arity) ? arity : 3
    end
    private_class_method :backtrace, :arity_of
  end

  # What rack.errors gets of an exception that the app has raised: its request, its message, and where in the app it was.
  #
  # It has no query string: that may hold secrets, and the monitor and RequestTimeout's line do not show it either.
  module ExceptionReport
    # Most bytes of a path and of a request id, as in RequestTimeout's line.
    LONGEST = 200

    module_function

    # @param error [Exception]
    # @param env [Hash, nil] nil: there is no request
    def write(error, env)
      text = "#{request(env)} failed: #{Backtrace.text(error)}"
      Log.report((env && env["rack.errors"]) || $stderr, text)
    end

    # Method and path as the client has sent them, whatever the app has made of env.
    def request(env)
      return "what runs between requests" unless env

      id = env["HTTP_X_REQUEST_ID"] || env["action_dispatch.request_id"]
      target = (env["REQUEST_URI"] || env["PATH_INFO"]).to_s.b.split("?", 2).first
      "#{printable(env["REQUEST_METHOD"])} #{printable(target)}#{" (request id #{printable(id)})" if id}"
    end

    def printable(text) = text.to_s.b[0, LONGEST].gsub(/[^\x20-\x7e]/n) { |byte| format("\\x%02x", byte.ord) }

    private_class_method :request, :printable
  end
end
