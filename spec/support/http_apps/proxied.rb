# frozen_string_literal: true

require_relative "calling_back"
require_relative "echo"
require_relative "filing"
require_relative "hijacking"
require_relative "hinting"
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
      @others = { "hijacking" => Hijacking.new, "filing" => Filing.new, "calling" => CallingBack.new, "hinting" => Hinting.new }
    end

    def call(env)
      case env["PATH_INFO"]
      when %r{\A/echo} then @echo.call(env)
      when %r{\A/(half|large|parts)} then @pacing.call(env)
      when %r{\A/streaming} then @streaming.call(env.merge("PATH_INFO" => env["PATH_INFO"].delete_prefix("/streaming")))
      when %r{\A/(hijacking|filing|calling|hinting)(/.*)} then other(env, Regexp.last_match(1), Regexp.last_match(2))
      else @responder.call(env)
      end
    end

    private

    # In the env itself, which is the one that the server looks into afterwards.
    def other(env, name, path)
      env["PATH_INFO"] = path
      @others.fetch(name).call(env)
    end
  end
end
