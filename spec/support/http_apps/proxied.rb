# frozen_string_literal: true

require_relative "echo"
require_relative "responder"
require_relative "pacing"
require_relative "streaming"

module HttpApps
  # The other apps in one, by the first part of the path.
  class Proxied
    def initialize
      @echo = Echo.new
      @responder = Responder.new
      @pacing = Pacing.new
      @streaming = Streaming.new
    end

    def call(env)
      case env["PATH_INFO"]
      when %r{\A/echo} then @echo.call(env)
      when %r{\A/(half|large|parts)} then @pacing.call(env)
      when %r{\A/streaming} then @streaming.call(env.merge("PATH_INFO" => env["PATH_INFO"].delete_prefix("/streaming")))
      else @responder.call(env)
      end
    end
  end
end
