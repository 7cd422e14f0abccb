# frozen_string_literal: true

require_relative "../configuration/config_file"
require_relative "../text"
require_relative "extras"
require_relative "words"

module Fastrack
  # The language of a puma.rb: Puma's words, and Fastrack's other words except `timeout`.
  class PumaFile < ConfigFile
    include PumaWords

    # Defaults of a puma.rb: a single process without recycling, and no middleware of the server's.
    DEFAULTS = { MaxWorkers: 1, MaxRequestPerChild: 0, DefaultMiddleware: false }.freeze

    undef_method :timeout

    # @return [Boolean] whether Puma has the word
    def self.word?(name)
      PumaWords.public_method_defined?(name) || (public_method_defined?(name, false) && !name.start_with?("__"))
    end

    # @param file [String] absolute path
    # @param environment [Hash, ENV]
    # @param fixed [Boolean] whether the command line has named the environment
    # @param host [String] address for the word `port`
    # @param shared see ConfigFile
    def initialize(file, environment: ENV, fixed: false, host: "0.0.0.0", **shared)
      super(file, **shared)
      @__environment__ = environment
      @__fixed__ = fixed
      @default_host = host
      @__puma__ = PumaExtras.new
      @__loads__ = []
      @__modes__ = []
      @__shutdown__ = {}
    end

    # @!visibility private
    # @return [PumaExtras]
    attr_reader :__puma__

    # @!visibility private
    def __defaults__ = DEFAULTS

    # @!visibility private
    # Puma's `port` and `bind` have the same option as Unicorn's `listen`.
    def __unicorns__? = false

    # @!visibility private
    # As in Puma, files of `load` are read at the end, and then the blocks of `single` and `cluster` are called.
    def __finish__
      while (path = @__loads__.shift)
        @__files__ << Text.expand(path)
        self.class.read_into(self, path)
      end
      @__modes__.each { |mode, block| block.call if mode == (__clustered__? ? :cluster : :single) }
      @__puma__.plugins.each { |name, plugin| __configure__(name, plugin) if plugin.respond_to?(:config) }
      __conclude__
      super
    end

    # @param path [String] another file, relative to the working directory
    def load(path) = @__loads__ << path

    # As in Puma, the command line outranks the word. `environment ENV["RACK_ENV"]` may be nil.
    def environment(name = nil)
      return super() if name.to_s.empty?

      @__puma__.options[:environment] = name.to_s
      AppEnvironment.override(name.to_s, @__environment__) unless @__fixed__
      super()
    end

    def rackup(path)
      @__puma__.rackup = path.to_s
    end

    def tag(text)
      @__puma__.tag = text.to_s unless text.to_s.empty?
    end

    def state_path(path)
      @__puma__.state = [Text.expand(path.to_s), @__puma__.state&.last]
    end

    def state_permission(mode)
      @__puma__.state = [@__puma__.state&.first, Option::Types.mode(mode)]
    rescue ArgumentError => e
      raise ConfigurationError, "state_permission #{e.message}; got #{mode.inspect}"
    end

    def single(&block) = @__modes__ << [:single, block]

    def cluster(&block) = @__modes__ << [:cluster, block]

    def inject(&block) = instance_eval(&block)

    def get(key, default = nil) = @__puma__.options.fetch(key.to_sym, default)

    def plugin(name)
      case name.to_s
      when "tmp_restart" then @__puma__.restart_file = "tmp/restart.txt"
      when "systemd" then nil
      else
        require_relative "plugins"
        @__puma__.plugins[name.to_sym] ||= PumaPlugins.find(name)
      end
    end

    # A word of Solid Queue's plugin.
    def solid_queue_mode(mode = :fork)
      @__puma__.options[:solid_queue_mode] = mode.to_sym
    end

    def log_requests(which = true) # rubocop:disable Style/OptionalBooleanParameter -- Puma's, as those below
      @__puma__.middleware[:log] = which
    end

    def quiet(which = true) # rubocop:disable Style/OptionalBooleanParameter
      log_requests(!which)
    end

    def custom_logger(logger)
      @__puma__.middleware[:logger] = logger
      __say__("custom_logger is used for log_requests; the server's own lines go to stderr (stderr_path)")
    end

    def rack_url_scheme(scheme = nil)
      @__puma__.middleware[:scheme] = scheme
    end

    def fiber_per_request(which = true) # rubocop:disable Style/OptionalBooleanParameter
      @__puma__.middleware[:fiber] = which
    end
    alias clean_thread_locals fiber_per_request

    def supported_http_methods(methods)
      unless methods == :any || (methods.is_a?(Array) && methods.any? && methods.all?(String))
        raise ConfigurationError, "supported_http_methods must be :any or a list of names; got #{methods.inspect[0, 200]}"
      end

      @__puma__.middleware[:methods] = methods == :any ? nil : methods
    end

    def set_remote_address(source = :socket) # rubocop:disable Naming/AccessorMethodName
      @__puma__.middleware[:address] =
        case source
        when :socket then nil
        when :localhost then "127.0.0.1"
        when String then source
        when ->(one) { one.is_a?(Hash) && one[:proxy_protocol] } then (@__proxy_protocol__ = true) && nil
        when ->(one) { one.is_a?(Hash) && one[:header] } then { header: "HTTP_#{source[:header].upcase.tr("-", "_")}" }
        else raise ConfigurationError, "set_remote_address must be :socket, :localhost, a text header: NAME or proxy_protocol: :v1; " \
                                       "got #{source.inspect[0, 200]}"
        end
    end

    def allow_underscore_headers(allowed = true) # rubocop:disable Style/OptionalBooleanParameter
      return if allowed

      raise ConfigurationError, "allow_underscore_headers false is not for this server: have the proxy drop them, as nginx does; " \
                                "X_Foo never replaces X-Foo here"
    end

    private

    def __configure__(name, plugin)
      plugin.config(self)
    rescue ConfigurationError
      raise
    rescue StandardError, ScriptError => e
      raise ConfigurationError, "ConfigFile #{@__file__}: plugin #{name.inspect} cannot be configured: #{Error.reason(e).lines.first.to_s.chomp}"
    end

    def __variables__ = @__environment__

    def __option__(name, value, word) = Option::BY_NAME.fetch(name).then { |option| __set__(option, value, word, option.word) }

    def __control_port__(address, token)
      __option__(:ControlToken, token, :activate_control_app) if token
      return __option__(:ControlListen, address, :activate_control_app) if token

      __say__("activate_control_app has no effect without auth_token: every user of this machine can connect to a port")
    rescue ConfigurationError => e
      __say__("activate_control_app has no effect: #{e.message}")
    end

    # Whether Puma would run as a cluster.
    def __clustered__?
      workers = @__puma__.options.fetch(:workers) { @__environment__["WEB_CONCURRENCY"] }
      !["", "0"].include?(workers.to_s)
    end

    # Turns log_requests into the server's access log. Not used with a logger, or with another client address than the peer's.
    def log_to_stdout
      @__puma__.middleware.delete(:log)
      __option__(:AccessLog, "-", :log_requests) unless @__words__.key?(:access_log)
    end

    # With Puma's default port where no address is named: the port must be known to be one of the PROXY protocol.
    def speak_proxy_protocol
      port(9292) unless @__words__.key?(:listen)
      listed = @__words__[:listen].value.map { |address| address.path ? address : address.with(proxy_protocol: true) }
      __store__(:listen, listed.freeze)
    end

    def __conclude__
      speak_proxy_protocol if @__proxy_protocol__
      workers(0) if !@__words__.key?(:max_workers) && @__environment__["WEB_CONCURRENCY"] == "0"
      log_to_stdout if @__puma__.middleware[:log] && @__puma__.middleware.values_at(:logger, :address).none?
      __option__(:GracefulTimeout, @__shutdown__.values.min, :worker_shutdown_timeout) if @__shutdown__.any?
      @__puma__.option_hooks.each do |name, hook|
        word = Option::BY_NAME[name].word
        __refuse__(word, "#{word} and Puma's word for that hook cannot both be there") if @__words__.key?(word)

        __option__(name, hook, word)
      end
    end

    def method_missing(word, *)
      words = Option::BY_WORD.keys + PumaWords.public_instance_methods + PumaFile.public_instance_methods(false)
      raise ConfigurationError, "unknown word #{word}#{Error.suggestion(word, words.uniq - %i[config_file timeout])}"
    end
  end
end
