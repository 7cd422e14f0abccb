# frozen_string_literal: true

require_relative "../backtrace"

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
end
