# frozen_string_literal: true

require_relative "listener/address"
require_relative "configuration/config_file"
require_relative "error"
require_relative "log"
require_relative "nearest_name"
require_relative "configuration/options"

module Fastrack
  # What a server was told, from everywhere it can be told, with the right of way
  # defaults < environment < options < ConfigFile. One reader for each option, named by its word.
  class Configuration
    # Variables of the environment that platforms and Procfiles set.
    VARIABLES = { MaxWorkers: "WEB_CONCURRENCY", Port: "PORT", KeepAliveTimeout: "PUMA_PERSISTENT_TIMEOUT" }.freeze

    # Keys that rackup, Rails and Sinatra hand to every handler; they are not for us.
    FOREIGN_KEYS = %i[
      AccessLog DoNotReverseLookup Silent Verbose app builder caching config daemonize debug debugger early_hints
      environment eval heapfile ignore_options include log_stdout log_to_stdout options pid profile_file profile_mode
      quiet require restart_cmd server user_supplied_options using warn
    ].freeze

    # What Listen goes instead of.
    PLACE = %i[Host Port Path].freeze

    # Where a ConfigFile is looked for when none is named.
    CONFIG_FILE = "config/fastrack.rb"

    Option::ALL.each do |option|
      define_method(option.word) { @values.fetch(option.name) }
    end

    # @param given [Hash] what the handler was given; names as Symbols or Strings
    # @param overrides [Hash{Symbol => Object}] what goes before a ConfigFile, by option name and of the options' types
    # @param environment [Hash, ENV]
    # @param output [IO, Log::Output] where the reading of a ConfigFile is announced
    # @param warnings [IO, Log::Output] where unknown options are named
    # @raise [ConfigurationError]
    def initialize(given = {}, overrides: {}, environment: ENV, output: Log::STDOUT, warnings: Log::STDERR)
      given = given.to_h { |key, value| [key.to_sym, value] }
      @given = given
      @overrides = overrides
      warn_of_unknown(given, warnings)
      assumed, chosen = known(given).partition { |name, _| assumed?(name, given) }.map(&:to_h)
      # All of a command line is checked, whatever a ConfigFile then says.
      assumed, chosen = [assumed, chosen].map { |values| coerce(values) }
      chosen[:ConfigFile] ||= CONFIG_FILE if File.file?(CONFIG_FILE)
      written = file(chosen[:ConfigFile], output, warnings)
      chosen.delete(:Listen) if (written.keys & PLACE).any?
      chosen = chosen.merge(written, overrides)
      @values = defaults.merge(assumed, variables(environment, chosen), chosen).freeze
    end

    # Reads the same file anew, wherever the process has gone since.
    #
    # @return [Configuration]
    # @raise [ConfigurationError]
    def reload
      self.class.new({ **@given, ConfigFile: @file }, overrides: @overrides.except(:ConfigFile))
    end

    # @param name [Symbol] an option's
    # @return [String] where its value was written, for messages: "ConfigFile /srv/app.rb:3: user"
    def source(name)
      @places.fetch(name) { "option #{name}" }
    end

    # @return [Array<Address>] where to listen
    def addresses
      default = { backlog: backlog, reuseport: reuseport }
      given = listen || [path ? Address.new(path: path) : Address.new(host: host, port: port)]
      given.map { |address| address.with_defaults(**default) }
    end

    # @return [Integer] requests after which a worker is replaced, drawn anew by each call; 0: never
    def draw_request_limit
      # A limit of 0 means none; it is not to be drawn by chance.
      max_request_per_child.zero? ? 0 : draw(min_request_per_child&.clamp(1..), max_request_per_child)
    end

    # @return [Integer] requests between two collections of garbage, drawn anew by each call
    def draw_gc_interval
      draw(min_gc_per_request, max_gc_per_request)
    end

    private

    def defaults
      Option::ALL.to_h { |option| [option.name, option.default] }
    end

    def known(given)
      # The file that rackup writes itself, for --pid. Where it is to be kept right from one master to the next, it is ours.
      { Pid: given[:pid] }.merge(given).filter_map do |key, value|
        option = Option::BY_NAME[key]
        [option.name, value] if option && !value.nil?
      end
    end

    # Whether a host and port were only filled in by what started us. rackup fills in an Integer, and hands over a
    # String when its user chose; Rails tells.
    def assumed?(name, given)
      return false unless %i[Host Port].include?(name)

      chosen = given[:user_supplied_options]
      return !chosen.include?(name) if chosen.respond_to?(:include?)

      name == :Port && given.key?(:AccessLog) && given[name].is_a?(Integer)
    end

    def coerce(values)
      values.to_h { |name, value| [name, Option::BY_NAME[name].coerce(value)] }
    end

    # Those that count: a platform may set them to what is not for us, where its user has chosen something else. An empty
    # variable counts as none, as it does on the platforms that set these.
    def variables(environment, chosen)
      decided = chosen.key?(:Path) || chosen.key?(:Listen) ? [*chosen.keys, :Port] : chosen.keys
      VARIABLES.except(*decided).filter_map do |name, variable|
        value = environment[variable]
        [name, variable_value(name, variable, value)] unless value.nil? || value.empty?
      end.to_h
    end

    # With WEB_CONCURRENCY=0 Puma's users ask for one process. Here it is one worker.
    def variable_value(name, variable, value)
      return 1 if name == :MaxWorkers && value == "0"

      Option::BY_NAME[name].coerce(value, variable)
    end

    def file(path, output, warnings)
      @places = {}
      return {} unless path

      output.puts "loading from config_file:#{path}"
      output.flush
      @file = File.expand_path(path, folder)
      config = ConfigFile.evaluate(path)
      config.__useless__.each { |line| warnings.puts "fastrack: #{line}" }
      @places = config.__places__.freeze
      config.__settings__
    end

    # This one, by the name that it was entered by: a link may lead elsewhere when the file is read again.
    def folder
      given = ENV["PWD"].to_s
      given.start_with?("/") && File.identical?(given, ".") ? given : Dir.pwd
    end

    def warn_of_unknown(given, warnings)
      (given.keys - Option::BY_NAME.keys - FOREIGN_KEYS).each do |key|
        warnings.puts "fastrack: unknown option #{key}#{NearestName.hint(key, Option::BY_NAME.keys)}"
      end
    end

    def draw(min, max)
      min && min < max ? rand(min..max) : max
    end
  end
end
