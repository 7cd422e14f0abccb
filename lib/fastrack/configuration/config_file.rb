# frozen_string_literal: true

require_relative "../error"
require_relative "../nearest_name"
require_relative "options"
require_relative "unicorn_words"

module Fastrack
  # The language of a ConfigFile: Ruby, with one word for each option, and those of a unicorn.rb.
  #
  #     max_workers ENV["WEB_CONCURRENCY"] || 3
  #     before_fork { ActiveRecord::Base.connection_pool.disconnect! }
  #
  # `timeout` is the one word that Rhebok's files and Unicorn's have with different meanings, see #__name__.
  class ConfigFile
    include UnicornWords

    # What a word was given, and where: "file:line".
    Given = Struct.new(:value, :place)
    private_constant :Given

    # Evaluates a file.
    #
    # @return [ConfigFile] see #__settings__ and #__places__
    # @raise [ConfigurationError] when it cannot be read or raises; the message has the line
    def self.evaluate(path)
      file = File.expand_path(path)
      text = text_of(path, file)
      config = new(file)
      begin
        config.instance_eval(text, file)
      rescue StandardError, ScriptError => e
        raise ConfigurationError, "ConfigFile #{place(e, file)}: #{summary(e, file)}"
      end
      config.__finish__
    end

    # @return [Hash{Symbol => Object}] values by option name, of their types
    # @raise see evaluate
    def self.load(path)
      evaluate(path).__settings__
    end

    def self.text_of(path, file)
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
    private_class_method :text_of, :place, :summary

    # @param file [String] its absolute path
    def initialize(file)
      @__file__ = file
      @__words__ = {}
      @__useless__ = []
    end

    # @!visibility private
    # @return [Array<String>] what is to be told of words that have no effect
    attr_reader :__useless__

    # @!visibility private
    # Named so that no word of a configuration can be it, like all that follow.
    #
    # @return [Hash{Symbol => Object}] values by option name
    def __settings__
      @__words__.to_h { |word, given| [__name__(word), given.value] }
    end

    # @!visibility private
    # @return [Hash{Symbol => String}] where they were written, by option name
    def __places__
      @__words__.to_h { |word, given| [__name__(word), "ConfigFile #{given.place}: #{word}"] }
    end

    # @!visibility private
    # Looks for what can be seen only once all words are known.
    #
    # @return [ConfigFile] self
    # @raise [ConfigurationError]
    def __finish__
      instead = __used__(%i[host port path])
      if instead && @__words__.key?(:listen)
        __refuse__(instead, "#{instead} does not count beside listen; make it one more listen")
      end
      marks = [__used__(UnicornWords::MARKS), __used__(UnicornWords::RHEBOK_MARKS)]
      return self unless @__words__.key?(:timeout) && marks.all?

      __refuse__(:timeout, "timeout has two meanings in a file with #{marks.join(" and ")}; " \
                           "write request_timeout, for the app, or client_timeout, for clients")
    end

    (Option::BY_WORD.keys - %i[config_file listen user]).each do |word|
      option = Option::BY_WORD[word]
      if option.hook?
        define_method(word) { |callable = nil, &block| __set__(option, callable || block || true, word) }
      else
        # A word alone means yes, as a bare -O Key does.
        define_method(word) { |value = true| __set__(option, value, word) }
      end
    end

    private

    # A nil is as good as the word not being there: `max_workers ENV["WEB_CONCURRENCY"]`.
    def __set__(option, value, word)
      value.nil? ? @__words__.delete(word) : __store__(word, option.coerce(value, word.to_s))
    end

    # The last one counts, also of two words for the same option.
    def __store__(word, value)
      @__words__.delete(word)
      @__words__[word] = Given.new(value, __place__)
    end

    def __place__
      line = caller_locations.find { |location| location.path == @__file__ }&.lineno
      line ? "#{@__file__}:#{line}" : @__file__
    end

    # In a unicorn.rb `timeout` is how long the app may take, in a file of Rhebok's how long a client may.
    def __name__(word)
      return Option::BY_WORD.fetch(word).name unless word == :timeout && __used__(UnicornWords::MARKS)

      :RequestTimeout
    end

    def __used__(words)
      words.find { |word| @__words__.key?(word) }
    end

    def __refuse__(word, message)
      raise ConfigurationError, "ConfigFile #{@__words__.fetch(word).place}: #{message}"
    end

    def method_missing(word, *)
      words = Option::BY_WORD.keys + UnicornWords::WITHOUT_EFFECT.keys - [:config_file]
      raise ConfigurationError, "there is no word #{word}#{NearestName.hint(word, words)}"
    end

    def respond_to_missing?(*)
      false
    end
  end
end
