# frozen_string_literal: true

require_relative "text"

module Fastrack
  # A reason why the server cannot start. The user sees one line, without a backtrace.
  class Error < StandardError
    # Exceptions that the app's code may raise in methods as simple as `message` and `write`.
    FOREIGN = [StandardError, ScriptError, SystemExit, SystemStackError].freeze

    # Message and class of an exception, for a log line.
    #
    # @param error [Exception]
    # @return [String] one line
    def self.reason(error)
      error.is_a?(Error) ? Text.utf8(error.message) : "#{Text.utf8(error.message.lines.first.to_s.chomp)} (#{error.class})"
    rescue *FOREIGN
      # `message` is a method of the app's, and has raised.
      error.class.to_s
    end

    # @param names [Array<Symbol>] the names that exist
    # @return [String] "; did you mean X?", or an empty String when no name is close
    def self.suggestion(name, names)
      # Ruby can be built and started without the gem.
      return "" unless defined?(DidYouMean::SpellChecker)

      nearest = DidYouMean::SpellChecker.new(dictionary: names).correct(Text.utf8(name.to_s).scrub).first
      nearest ? "; did you mean #{nearest}?" : ""
    end
  end

  # Generation 0 has failed at the start of the server, and has told the reason in the log.
  class StartFailed < Error
    # @return [Integer] exit status of the server
    attr_reader :status

    # @param reason [String]
    # @param status [Integer]
    def initialize(reason, status)
      super(reason)
      @status = status
    end
  end

  # An invalid option, environment variable or line of a ConfigFile.
  class ConfigurationError < Error
  end

  # An address that the server cannot listen on.
  class ListenError < Error
  end

  # An address that another process listens on. The address may be free soon.
  class AddressInUseError < ListenError
  end
end
