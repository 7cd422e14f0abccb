# frozen_string_literal: true

require_relative "../error"
require_relative "../listener/address"
require_relative "../process/safe_file"
require_relative "../text"
require_relative "app_environment"
require_relative "options"

module Fastrack
  # For a puma.rb, and for Puma's words in other files.
  autoload :PumaFile, File.expand_path("../puma/config_file", __dir__)

  # The language of a ConfigFile: Ruby with a word for each option, the words of a unicorn.rb, and the words of a puma.rb that have no other
  # meaning here.
  #
  #     max_workers ENV["WEB_CONCURRENCY"] || 3
  #     before_fork { ActiveRecord::Base.connection_pool.disconnect! }
  #
  # Methods that are no words of a configuration have underscores around their names.
  class ConfigFile
    # Words of a unicorn.rb, and Rhebok's words for the same. The words in a file decide the meaning of `timeout`: the limit of the app
    # (Unicorn), or of a client (Rhebok).
    UNICORN_MARKS = %i[worker_processes listen preload_app].freeze
    RHEBOK_MARKS = %i[max_workers host port path reuseport].freeze

    # Unicorn's words without effect: the values that describe what Fastrack does, and the warning for other values.
    WITHOUT_EFFECT = {
      # Fastrack always drops a request whose client has left before the request's turn.
      check_client_connection: [[true, false], nil],
      rewindable_input: [[true], "bodies are always rewindable; see stream_body for calling the app early"],
      client_body_buffer_size: [[], "bodies of up to 1 MiB are kept in memory, larger ones in a file"],
      worker_exec: [[false], "workers are always forked; see preload_app false for loading the app in each"],
      trust_x_forwarded: [[false], "rack.url_scheme is that of the connection; Rack::Request#scheme reads X-Forwarded-Proto"]
    }.freeze

    # Unicorn's default for a listener: an old server may still listen there.
    TRIES = 5

    # The value of a word, and its source: "file:line".
    WordValue = Struct.new(:value, :source)
    private_constant :WordValue

    class << self
      # Evaluates a file.
      #
      # @param context see #initialize
      # @return [ConfigFile] see #__settings__ and #__sources__
      # @raise [ConfigurationError] when the file cannot be read, or raises anything; the message has the line
      # @raise [SystemExit] when the file calls exit
      def evaluate(path, **context)
        config = new(Text.expand(path), **context)
        read_into(config, path)
        config.__finish__
      end

      # @!visibility private
      def read_into(config, path)
        file = Text.expand(path)
        config.instance_eval(text_of(path, file), file)
      rescue SystemExit, SignalException
        raise
      rescue Exception => e # rubocop:disable Lint/RescueException -- also endless recursion and SecurityError
        raise if e.is_a?(ConfigurationError) && e.message.start_with?("ConfigFile ")

        raise ConfigurationError, "ConfigFile #{place(e, file)}: #{summary(e, file)}"
      end

      # @return [Hash{Symbol => Object}] values by option name, of the options' types
      # @raise [ConfigurationError]
      def load(path) = evaluate(path).__settings__

      private

      def text_of(path, file)
        File.read(file, encoding: Encoding::UTF_8)
      rescue SystemCallError => e
        raise ConfigurationError, "ConfigFile #{path}: #{SafeFile.reason(e)}"
      end

      # The innermost line of the file in the backtrace. A SyntaxError has the line in its message.
      def place(error, file)
        lines = error.is_a?(SyntaxError) ? error.message.lines : Array(error.backtrace)
        lines.filter_map { |line| Text.utf8(line.b[/\A#{Regexp.escape(file.b)}:\d+/n].to_s) }.reject(&:empty?).first || file
      end

      def summary(error, file)
        Text.utf8(Error.reason(error).lines.first.to_s.chomp.b.sub(/\A#{Regexp.escape(file.b)}:\d+: /n, ""))
      end
    end

    # `Puma::Const::SUPPORTED_HTTP_METHODS`
    def self.const_missing(name)
      return super unless name == :Puma

      require_relative "../puma/plugins"
      PumaPlugins.constants
    end

    # @param file [String] absolute path
    # @param words [Hash{Symbol => WordValue}] gets the words of the file
    # @param warnings [Array<String>] gets the warnings
    # @param context see PumaFile
    def initialize(file, words: {}, warnings: [], **context)
      @__file__ = file
      @__files__ = [file]
      @__words__ = words
      @__warnings__ = warnings
      @__context__ = context
    end

    # @!visibility private
    # @return [Array<String>] warnings about words that have no effect
    attr_reader :__warnings__

    # @!visibility private
    # @return [Hash{Symbol => Object}] values by option name
    def __settings__ = @__words__.to_h { |word, given| [__name__(word), given.value] }

    # @!visibility private
    # @return [Hash{Symbol => String}] where they were written, by option name
    def __sources__ = @__words__.to_h { |word, given| [__name__(word), "ConfigFile #{given.source}: #{word}"] }

    # @!visibility private
    # @return [PumaExtras, nil] settings of a puma.rb that are no options
    def __puma__ = @__neighbour__&.__puma__

    # @!visibility private
    # @return [Boolean] whether it has words of a unicorn.rb
    def __unicorn__? = !__used__(UNICORN_MARKS).nil?

    # @!visibility private
    # @return [Boolean] whether it is a unicorn.rb, whose app need not be thread-safe. `listen` and `preload_app` are Fastrack's words, too.
    def __unicorns__? = @__words__.key?(:worker_processes) || File.basename(@__file__).include?("unicorn")

    # @!visibility private
    # @return [Hash{Symbol => Object}] defaults of this kind of file, by option name
    def __defaults__ = {}

    # @!visibility private
    # Makes the checks that need all words.
    #
    # @return [ConfigFile] self
    # @raise [ConfigurationError]
    def __finish__
      @__neighbour__&.__finish__
      __listen_at_port__ if @__words__.key?(:port) && @__words__.key?(:listen)
      place = __used__(%i[host port path])
      if place && @__words__.key?(:listen)
        __refuse__(place, "#{place} has no effect beside listen; write it as another listen")
      end
      marks = [__used__(UNICORN_MARKS), __used__(RHEBOK_MARKS)]
      return self unless @__words__.key?(:timeout) && marks.all?

      __refuse__(:timeout, "timeout has two meanings in a file with #{marks.join(" and ")}; " \
                           "write request_timeout, for the app, or client_timeout, for clients")
    end

    (Option::BY_WORD.keys - %i[config_file listen user cache_control trusted_proxies tls_domains public_links force_ssl_except warm_up]).each do |word|
      option = Option::BY_WORD[word]
      if option.hook?
        define_method(word) { |callable = nil, &block| __set__(option, callable || block || true, word) }
      else
        # A word alone means true, like a bare -O Key.
        define_method(word) { |value = true| __set__(option, value, word) }
      end
    end

    # @param place see Address
    # @param settings see Address::SETTINGS
    # @raise [ConfigurationError]
    def listen(place, settings = {})
      return if place.nil?

      address = Address.parse(place, settings).with_defaults(tries: TRIES)
      listed = @__words__[:listen]&.value || []
      __store__(:listen, [*listed.reject { |one| one == address }, address].freeze)
    rescue ArgumentError => e
      raise ConfigurationError, "listen #{e.message}; got #{[place, *settings].join(" ")[0, 200].inspect}"
    end

    # @param name [String, nil] as Puma's word, which sets the environment
    # @return [String] the app's environment, which `-e`, RACK_ENV or RAILS_ENV names
    def environment(name = nil)
      method_missing(:environment, name) unless name.to_s.empty?
      AppEnvironment.name(__variables__)
    end

    # @return [Boolean]
    def production? = environment == "production"

    # Puma's word. Idle threads sleep, so a minimum is of no use.
    #
    # @param min [Integer, String, nil]
    # @param max [Integer, String, nil]
    def threads(min = true, max = min) = __set__(Option::BY_NAME[:MaxThreads], max, :max_threads)

    # As in Puma: also ssl://, with parameters.
    #
    # @param place see Address
    def bind(place)
      return method_missing(:bind, place) unless Address::TLS.match?(place.to_s)

      listen(place)
    end

    # @param names [Array<String>]
    def tls_domains(*names) = __set__(Option::BY_NAME[:TLSDomains], names.flatten, :tls_domains)

    # @param networks [Array<String>]
    def trusted_proxies(*networks) = __set__(Option::BY_NAME[:TrustedProxies], networks.flatten, :trusted_proxies)

    # @param folders [Array<String>]
    def public_links(*folders) = __set__(Option::BY_NAME[:PublicLinks], folders.flatten, :public_links)

    # @param patterns [Array<String>] of paths
    def force_ssl_except(*patterns) = __set__(Option::BY_NAME[:ForceSSLExcept], patterns.flatten, :force_ssl_except)

    # Without paths and block: the usual pages.
    #
    # @param paths [Array<String>]
    # @param settings see WarmUpPages
    # @yieldparam client [WarmUp::Client]
    def warm_up(*paths, **settings, &block)
      return __set__(Option::BY_NAME[:WarmUp], paths.first, :warm_up) if [[nil], [false]].include?(paths)

      paths = [] if paths == [true]
      __store__(:warm_up, [*@__words__[:warm_up]&.value, WarmUpPages.of(paths.flatten, settings, block)].freeze)
    rescue ArgumentError => e
      raise ConfigurationError, "warm_up #{e.message}; got #{[*paths, *settings].join(" ")[0, 200].inspect}"
    end

    # @param pattern [String] of paths
    # @param value [String] the Cache-Control of these files
    def cache_control(pattern, value = nil)
      option = Option::BY_NAME[:CacheControl]
      rules = option.coerce(value ? [[pattern, value]] : pattern, "cache_control")
      __store__(:cache_control, [*@__words__[:cache_control]&.value, *rules].freeze)
    end

    # @param name [String, nil]
    # @param group [String, nil]
    def user(name = true, group = nil) = __set__(Option::BY_NAME[:User], group ? [name, group] : name, :user)

    WITHOUT_EFFECT.each do |word, (as_is, reason)|
      define_method(word) do |value = true|
        __say__("#{word} has no effect: #{reason}") unless reason.nil? || as_is.include?(value)
      end
    end

    private

    # As in Puma, `port` beside other addresses is one more address.
    def __listen_at_port__
      host = @__words__.delete(:host)&.value || @__context__[:host] || "0.0.0.0"
      address = Address.new(host: host, port: @__words__.delete(:port).value).with_defaults(tries: TRIES)
      listed = @__words__[:listen]
      @__words__[:listen] = WordValue.new([*listed.value, address].uniq.freeze, listed.source)
    end

    # @return [Hash, ENV]
    def __variables__ = @__context__.fetch(:environment, ENV)

    # A nil value counts as no word: `max_workers ENV["WEB_CONCURRENCY"]`.
    #
    # @param source [Symbol] the word in the file
    # @param word [Symbol] key of the value
    def __set__(option, value, source, word = source)
      value.nil? ? @__words__.delete(word) : __store__(word, option.coerce(value, source.to_s))
    end

    # The last value wins, also between two words for the same option.
    def __store__(word, value)
      @__words__.delete(word)
      @__words__[word] = WordValue.new(value, __source__)
    end

    def __say__(text) = @__warnings__ << "ConfigFile #{__source__}: #{text}"

    def __source__
      location = caller_locations.find { |one| @__files__.include?(one.path) }
      location ? "#{location.path}:#{location.lineno}" : @__file__
    end

    def __name__(word)
      return Option::BY_WORD.fetch(word).name unless word == :timeout && __used__(UNICORN_MARKS)

      :RequestTimeout
    end

    def __used__(words) = words.find { |word| @__words__.key?(word) }

    def __refuse__(word, message)
      raise ConfigurationError, "ConfigFile #{@__words__.fetch(word).source}: #{message}"
    end

    # Puma's words are read as in a puma.rb, into the same settings.
    def method_missing(word, *arguments, **keywords, &block)
      unless PumaFile.word?(word)
        words = Option::BY_WORD.keys + WITHOUT_EFFECT.keys - [:config_file]
        raise ConfigurationError, "unknown word #{word}#{Error.suggestion(word, words)}"
      end

      @__neighbour__ ||= PumaFile.new(@__file__, words: @__words__, warnings: @__warnings__, **@__context__)
      @__neighbour__.public_send(word, *arguments, **keywords, &block)
    end

    def respond_to_missing?(*) = false
  end
end
