# frozen_string_literal: true

require "rbconfig"
require_relative "error"
require_relative "text"

module Fastrack
  # Message and backtrace of an exception, for the log.
  module Backtrace
    # A frame in Exception#full_message. The innermost frame is in the line of the message, and does not match.
    FRAME = /\A\tfrom /.freeze

    module_function

    # @param error [Exception]
    # @return [String] UTF-8, with the app's frames, also those of causes; with all frames if BACKTRACE is set
    def text(error)
      text = full(error).scrub
      ENV["BACKTRACE"].to_s.empty? ? shortened("#{text}\n") : text
    end

    # @return [String] with all frames
    def full(error)
      Text.utf8(error.full_message(highlight: false, order: :top)).chomp
    rescue *Error::FOREIGN
      # `message` is a method of the app's and has raised, or its encoding differs from a path's.
      first, *frames = frames(error)
      ["#{"#{first}: " if first}#{Error.reason(error)}", *frames.map { |frame| "\tfrom #{frame}" }].join("\n")
    end

    # @return [Array<String>] UTF-8; empty if `backtrace` is a method of the app's and fails
    def frames(error)
      Array(error.backtrace).map { |frame| Text.utf8(frame) }
    rescue *Error::FOREIGN
      []
    end

    # Drops frames outside of the app, unless the app has none. Each cause has a backtrace of its own.
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

    # Folders with code and commands of Fastrack, gems and Ruby. They are looked up late, because Bundler changes Gem.path when the app sets
    # it up.
    def foreign
      @foreign ||= begin
        gems = defined?(Gem) ? Gem.path.product(%w[gems bundler/gems bin]).map { |parts| File.join(*parts) } : []
        ruby = RbConfig::CONFIG.values_at("rubylibdir", "sitedir", "vendordir", "bindir").compact
        own = %w[lib exe].map { |folder| File.expand_path("../../#{folder}", __dir__) }
        ["<internal:", *[*own, *gems, *ruby].map { |path| "#{Text.utf8(path).scrub}/" }]
      end
    end
    private_class_method :shortened, :own, :foreign?, :foreign
  end
end
