# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "../text"

module Fastrack
  # Formats the server's lines (LogFormat), or passes them to a logger.
  class LogFormat
    # Characters that JSON does not allow in a string (RFC 8259 §7), and those that some readers take for the end of a line.
    SPECIAL = /["\\\u0000-\u001f\u2028\u2029]/.freeze

    # @param format [String, nil] see options.rb; nil: lines on stderr have a time, unless their reader adds one
    # @param logger [Logger, nil]
    def initialize(format, logger)
      @format = format
      @logger = logger
    end

    # Writes a line to the logger, or to stderr.
    def line(text, level)
      return if log(text, level)

      Log::STDERR.puts(formatted("fastrack: #{text}", text, level, @format || (timed_by_reader? ? "plain" : "timestamp")))
    end

    # Writes a line to stdout.
    def say(text)
      # Rhebok's users look for these lines as they are.
      Log::STDOUT.puts(formatted(text, text, :info, @format || "plain"))
    end

    # @param text [String]
    # @return [String] as a string in JSON
    def self.quote(text)
      # Encodings that the locale gives to unknown bytes.
      text = Text.utf8(text) if [Encoding::US_ASCII, Encoding::BINARY].include?(text.encoding)
      text = text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace).scrub
      "\"#{text.gsub(SPECIAL) { |char| "\"\\".include?(char) ? "\\#{char}" : format("\\u%04x", char.ord) }}\""
    end

    private

    # Whether stderr is a terminal, where somebody looks, or the journal: JOURNAL_STREAM names its device and inode (systemd.exec(5)).
    # Asked each time, because StderrPath, the app or a daemon's start may have replaced stderr.
    def timed_by_reader?
      return false unless $stderr.is_a?(IO)
      return true if $stderr.tty?

      journal = ENV["JOURNAL_STREAM"]
      !journal.nil? && $stderr.stat.then { |found| journal == "#{found.dev}:#{found.ino}" }
    rescue IOError, SystemCallError
      false
    end

    def formatted(line, message, level, format)
      return line if format == "plain"

      time = Time.now.utc.strftime("%FT%T.%LZ")
      return "#{time} #{Process.pid} #{level.to_s.upcase} #{line}" if format == "timestamp"

      %({"time":"#{time}","level":"#{level}","pid":#{Process.pid},"message":#{LogFormat.quote(message)}})
    end

    # Passes a line to the logger. The logger's device may be a pipe without a reader, or a network, so a thread waits for it. While that
    # thread is stuck, lines are lost.
    #
    # @return [Boolean] false where the logger fails
    def log(text, level)
      return false unless @logger

      # A fork copies no threads. The parent reports lines that were lost before the fork.
      @writing, @stuck, @lost, @pid = nil, nil, 0, Process.pid unless @pid == Process.pid
      return true.tap { @lost += 1 } if stuck?

      text = "#{text} (#{@lost == 1 ? "the line before this one was" : "#{@lost} lines before this one were"} lost)" if @lost.positive?
      @lost = 0
      writing = @writing = Thread.new { write(text, level) }
      # A signal handler does not wait any longer, either: the thread that it has interrupted may have the logger's lock.
      return writing.value if writing.join(Log::Output::PATIENCE)

      @stuck = writing
      true
    rescue *Error::FOREIGN
      false
    end

    # Whether the line before this one is stuck. A line of another thread, or of code that a signal handler has interrupted, may have begun
    # just now, and gets its time.
    def stuck?
      writing = @writing
      return false unless writing&.alive?

      @stuck = writing unless writing.equal?(@stuck) || writing.join(Log::Output::PATIENCE)
      writing.equal?(@stuck)
    end

    def write(text, level)
      @logger.public_send(level, text)
      true
    rescue Exception # rubocop:disable Lint/RescueException -- `exit` in a thread would end the server
      false
    end
  end
end
