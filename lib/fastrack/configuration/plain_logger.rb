# frozen_string_literal: true

module Fastrack
  # The methods of Ruby's Logger that hooks use, for a bundle without the gem logger. Since Ruby 4.0 the logger is a gem.
  class PlainLogger
    LEVELS = %i[debug info warn error fatal unknown].freeze

    # @return [Integer] index into LEVELS
    attr_reader :level
    attr_accessor :progname

    # @param stream [#write]
    def initialize(stream)
      @stream = stream
      @level = 0
    end

    # @param level [Integer, String, Symbol]
    def level=(level)
      @level = level.is_a?(Integer) ? level : LEVELS.index(level.to_s.downcase.to_sym) || 0
    end

    # @yieldreturn [Object] the message, if none is given
    def add(severity, message = nil, progname = nil)
      return true if severity < @level

      message = block_given? ? yield : progname if message.nil?
      text = message.is_a?(Exception) ? message.full_message(highlight: false) : message
      name = LEVELS.fetch(severity, :unknown).to_s.upcase
      self << format("%s, [%s #%d] %5s -- %s: %s\n", name[0], Time.now.strftime("%FT%T.%6N"), Process.pid, name, @progname, text)
      true
    end
    alias log add

    # @param text [String] written as it is
    def <<(text)
      @stream.write(text)
      self
    end

    LEVELS.each_with_index do |name, severity|
      define_method(name) { |progname = nil, &block| add(severity, nil, progname, &block) }
      define_method(:"#{name}?") { @level <= severity }
    end

    def close; end
  end
end
