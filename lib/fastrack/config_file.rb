# frozen_string_literal: true

require_relative "error"
require_relative "nearest_name"
require_relative "option"

module Fastrack
  # The language of a ConfigFile: Ruby, with one word for each option.
  #
  #     max_workers ENV["WEB_CONCURRENCY"] || 3
  #     before_fork { ActiveRecord::Base.connection_pool.disconnect! }
  class ConfigFile
    NOTHING = Object.new.freeze
    private_constant :NOTHING

    # Reads a file.
    #
    # @return [Hash{Symbol => Object}] values by option name, of their types
    # @raise [ConfigurationError] when it cannot be read or raises; the message has the line
    def self.load(path)
      file = File.expand_path(path)
      text = read(path, file)
      begin
        new.tap { |config| config.instance_eval(text, file) }.__settings__
      rescue StandardError, ScriptError => e
        raise ConfigurationError, "ConfigFile #{place(e, file)}: #{summary(e, file)}"
      end
    end

    def self.read(path, file)
      File.read(file, encoding: Encoding::UTF_8)
    rescue SystemCallError => e
      raise ConfigurationError, "ConfigFile #{path}: #{SystemCallError.new(nil, e.errno).message.downcase}"
    end

    # The file and line that a user has to look at: the innermost of the file's own. A SyntaxError has it in its text.
    def self.place(error, file)
      lines = error.is_a?(SyntaxError) ? error.message.lines : Array(error.backtrace)
      lines.filter_map { |line| line[/\A#{Regexp.escape(file)}:\d+/] }.first || file
    end

    # One line; the names of classes are left out where the message tells enough.
    def self.summary(error, file)
      line = error.message.lines.first.to_s.chomp.sub(/\A#{Regexp.escape(file)}:\d+: /, "")
      error.is_a?(ConfigurationError) ? line : "#{line} (#{error.class})"
    end
    private_class_method :read, :place, :summary

    def initialize
      @__settings__ = {}
    end

    # @!visibility private
    # Named so that no word of a configuration can be it.
    attr_reader :__settings__

    Option::ALL.each do |option|
      next if option.name == :ConfigFile

      if option.hook?
        define_method(option.word) { |callable = nil, &block| __set__(option, callable || block || true) }
      else
        # A word alone means yes, as a bare -O Key does.
        define_method(option.word) { |value = true| __set__(option, value) }
      end
    end

    private

    # A nil is as good as the word not being there: `max_workers ENV["WEB_CONCURRENCY"]`.
    def __set__(option, value)
      value.nil? ? @__settings__.delete(option.name) : @__settings__[option.name] = option.coerce(value, option.word.to_s)
    end

    def method_missing(word, *)
      words = Option::BY_WORD.keys - [:config_file]
      raise ConfigurationError, "there is no word #{word}#{NearestName.hint(word, words)}"
    end

    def respond_to_missing?(*)
      false
    end
  end
end
