# frozen_string_literal: true

module Fastrack
  # The response to a request whose app has raised an exception. There is one of these only where the engine's own answer,
  # 500 without a word about the reason, is not what is wanted.
  module ErrorPage
    STATUS = 500

    # @param handler [#call, nil] the app's own: |error|, |error, env| or |error, env, status|, as Puma calls it; it gives
    #   a Rack response
    # @param development [Boolean] whether whoever sees the page may see how the app looks inside
    # @return [#call, nil] takes the exception and the env, and gives a Rack response; nil: the engine's own will do
    def self.for(handler, development: ENV["RACK_ENV"] == "development")
      if handler
        count = arity_of(handler)
        ->(error, env) { handler.call(*[error, env, STATUS].first(count)) }
      elsif development
        ->(error, _env) { backtrace(error) }
      end
    end

    # @param error [Exception]
    # @return [Array(Integer, Hash, Array<String>)] what rack.errors gets, as text that no browser takes for a page
    def self.backtrace(error)
      text = error.full_message(highlight: false, order: :top)
      headers = { "content-type" => "text/plain; charset=utf-8", "x-content-type-options" => "nosniff" }
      [STATUS, headers, ["500 Internal Server Error: the application failed\n\n", text]]
    end

    # How many arguments it takes, three at most.
    def self.arity_of(handler)
      arity = handler.respond_to?(:arity) ? handler.arity : handler.method(:call).arity
      [1, 2].include?(arity) ? arity : 3
    end
    private_class_method :backtrace, :arity_of
  end
end
