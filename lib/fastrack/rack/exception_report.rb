# frozen_string_literal: true

require "rbconfig"
require_relative "../error"
require_relative "../log"

module Fastrack
  # What rack.errors gets of an exception that the app has raised: its request, its message, and where in the app it was.
  #
  # It has no query string: that may hold secrets, and the monitor and RequestTimeout's line do not show it either.
  module ExceptionReport
    # A frame of the backtrace in Exception#full_message, but for the innermost one: that is in the line of the message.
    FRAME = /\A\tfrom /.freeze

    # Most bytes of a path and of a request id, as in RequestTimeout's line.
    LONGEST = 200

    module_function

    # @param error [Exception]
    # @param env [Hash, nil] nil: there is no request
    def write(error, env)
      text = "#{request(env)} failed: #{message(error)}"
      Log.report((env && env["rack.errors"]) || $stderr, text)
    end

    # Method and path as the client has sent them, whatever the app has made of env.
    def request(env)
      return "what runs between requests" unless env

      id = env["HTTP_X_REQUEST_ID"] || env["action_dispatch.request_id"]
      target = (env["REQUEST_URI"] || env["PATH_INFO"]).to_s.b.split("?", 2).first
      "#{printable(env["REQUEST_METHOD"])} #{printable(target)}#{" (request id #{printable(id)})" if id}"
    end

    def message(error)
      text = utf8(error.full_message(highlight: false, order: :top))
      ENV["BACKTRACE"].to_s.empty? ? shortened(text) : text.chomp
    rescue *Error::FOREIGN
      # Its message is a method of the app's.
      [error.class, *error.backtrace&.first].join(", at ")
    end

    # Without the frames that are not the app's, unless there are no others. Causes have backtraces of their own.
    def shortened(text)
      innermost = ""
      text.lines.chunk { |line| line.match?(FRAME) }.flat_map do |frames, lines|
        next own(lines, innermost) if frames

        innermost = lines.first
        lines
      end.join.chomp
    end

    def own(frames, innermost)
      kept = frames.reject { |frame| foreign?(frame.sub(FRAME, "")) }
      return frames if kept == frames || (kept.empty? && foreign?(innermost))

      [*kept, "\t... #{frames.size - kept.size} more of gems, Ruby and Fastrack (BACKTRACE=1 shows them)\n"]
    end

    def foreign?(frame) = frame.start_with?(*foreign)

    # Where the code of Fastrack, of gems and of Ruby is, and the commands that start it. Not looked up before an app may have set up
    # Bundler, which changes Gem.path.
    def foreign
      @foreign ||= begin
        gems = defined?(Gem) ? Gem.path.product(%w[gems bundler/gems bin]).map { |parts| File.join(*parts) } : []
        ruby = RbConfig::CONFIG.values_at("rubylibdir", "sitedir", "vendordir", "bindir").compact
        own = %w[lib exe].map { |folder| File.expand_path("../../../#{folder}", __dir__) }
        ["<internal:", *[*own, *gems, *ruby].map { |path| utf8("#{path}/") }]
      end
    end

    def printable(text) = text.to_s.b[0, LONGEST].gsub(/[^\x20-\x7e]/n) { |byte| format("\\x%02x", byte.ord) }

    def utf8(text) = text.b.force_encoding(Encoding::UTF_8).scrub

    private_class_method :request, :message, :shortened, :own, :foreign?, :foreign, :printable, :utf8
  end
end
