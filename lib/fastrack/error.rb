# frozen_string_literal: true

require_relative "text"

module Fastrack
  # Why the server cannot start, for its user: one line, shown without a backtrace.
  class Error < StandardError
    # What code of the app's may raise where the server asks it for a text only: `message`, `write`.
    FOREIGN = [StandardError, ScriptError, SystemExit, SystemStackError].freeze

    # What any exception says, for a log line.
    #
    # @param error [Exception]
    # @return [String] one line
    def self.reason(error)
      error.is_a?(Error) ? Text.utf8(error.message) : "#{Text.utf8(error.message.lines.first.to_s.chomp)} (#{error.class})"
    rescue *FOREIGN
      # Its message is a method of the app's.
      error.class.to_s
    end

    # @param names [Array<Symbol>] the names that exist
    # @return [String] "; did you mean X?", or nothing when no name is close
    def self.suggestion(name, names)
      # Ruby can be built and started without the gem.
      return "" unless defined?(DidYouMean::SpellChecker)

      nearest = DidYouMean::SpellChecker.new(dictionary: names).correct(Text.utf8(name.to_s).scrub).first
      nearest ? "; did you mean #{nearest}?" : ""
    end
  end

  # An invalid option, environment variable or line of a ConfigFile.
  class ConfigurationError < Error
  end

  # An address that the server cannot listen on.
  class ListenError < Error
  end

  # An address that another process listens on. It may be free soon.
  class AddressInUseError < ListenError
  end
end
