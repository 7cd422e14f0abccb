# frozen_string_literal: true

require_relative "../backtrace"
require_relative "../log"

module Fastrack
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
