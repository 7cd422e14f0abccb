# frozen_string_literal: true

require "optparse"
require_relative "../configuration/options"
require_relative "../error"
require_relative "../listener/address"
require_relative "help"
require_relative "puma_flags"

module Fastrack
  # The arguments of the `fastrack` command.
  class Arguments
    include PumaFlags

    # Commands for a running server, and the options that their help shows; that of others shows those of serving. All are allowed, so that a
    # start's may be kept.
    CONTROL = {
      "status" => %i[finding looking], "phased-restart" => %i[finding waiting], "reload" => %i[finding waiting],
      "restart" => %i[finding waiting], "refork" => %i[finding waiting], "stop" => %i[finding waiting], "workers" => %i[finding]
    }.freeze
    SERVING = %i[places settings finding puma_flags].freeze

    # @return [Hash{String => OptionParser}] by command, "" for none: what the gem has of pages and completions is made of them
    def self.parsers = ["", *Help::COMMANDS.keys].to_h { |command| [command, new([]).parser_of(command)] }

    # @return [Symbol] :serve, :check, :help, :version or one of CONTROL, where phased-restart is :reload
    attr_reader :action
    # @return [Integer, nil] workers more, or less
    attr_reader :change
    # @return [String, nil] the app's file, as given
    attr_reader :app_file
    # @return [String, nil] as given, or nil
    attr_reader :environment
    # @return [Hash{Symbol => Object}] by option name, of the options' types
    attr_reader :settings

    # @param arguments [Array<String>] not changed
    # @raise [Error]
    def initialize(arguments)
      @action = :serve
      @settings = {}
      @addresses = []
      rest = parser("", SERVING | CONTROL.values.flatten).parse(with_change(Help.as_bytes(arguments)))
      @command = rest.first if Help::COMMANDS.key?(rest.first)
      return if %i[help version].include?(@action)

      @action = :check if @command == "check" && rest.shift
      @action = rest.shift.sub("phased-restart", "reload").to_sym if CONTROL.key?(@command)
      @app_file = rest.shift unless control?
      raise Error, "only one app: #{rest.join(" ")} is not expected" unless rest.empty?
    rescue OptionParser::ParseError => e
      raise Error, e.message
    end

    # Whether it is a command for a running server.
    def control? = CONTROL.key?(@action.to_s)

    def watch? = @watch || false

    def no_wait? = @no_wait || false

    def json? = @json || false

    # Whether the configuration file is Puma's, whatever its name is.
    def puma? = @puma || false

    def daemonize? = @daemonize

    # @return [String] of the command that was named, or of all
    def help = parser_of(@command).help

    def parser_of(command) = parser(Help::COMMANDS.fetch(command, Help::ALL), CONTROL.fetch(command, SERVING))

    # What overrides a ConfigFile.
    #
    # @param host [String] to listen on if only a port was given
    # @return [Hash{Symbol => Object}]
    def overrides(host)
      addresses = [*@settings[:Listen], *@addresses]
      addresses << Address.new(path: @settings[:Path]) if @settings.key?(:Path)
      if @settings.key?(:Host) || @settings.key?(:Port)
        addresses << Address.new(host: @settings.fetch(:Host, host), port: @settings.fetch(:Port, Option::DEFAULTS[:Port]))
      end
      rest = @settings.except(:Listen, :Host, :Port, :Path)
      addresses.empty? ? rest : rest.merge(Listen: addresses.freeze)
    end

    private

    # `workers -1` is no option.
    def with_change(arguments)
      return arguments unless arguments.first == "workers" && (arguments & %w[-h --help]).empty?

      @change = arguments[1].to_s[/\A[+-]\d{1,2}\z/]&.to_i
      raise Error, "workers needs a number to add or remove: workers +1, workers -1" unless @change&.nonzero?

      arguments.first(1) + arguments.drop(2)
    end

    def parser(text, groups)
      Help::Options.new(text) do |options|
        groups.each { |group| send(:"add_#{group}", options) }
        options.on("-h", "--help", "show this help") { @action = :help }
        options.on("-v", "--version", "show the version") { @action = :version }
      end
    end

    def add_looking(options)
      options.on("--watch", "refresh every second") { @watch = true }
      options.on("--json", "as JSON") { @json = true }
    end

    def add_waiting(options)
      options.on("--no-wait", "send the signal and do not wait for the result") { @no_wait = true }
    end

    def add_places(options)
      # -l is Unicorn's.
      %w[-b -l].zip(["--bind URI", "--listen ADDRESS"]) do |short, long|
        options.on(short, long, "listen on tcp://HOST:PORT, HOST:PORT or PATH; may be repeated") do |text|
          @addresses.concat(Address.list(text))
        rescue ArgumentError => e
          raise Error, "#{short} #{e.message}; got #{text.inspect}"
        end
      end
      option(options, :Host, "-o", "--host HOST", "address to listen on")
      option(options, :Port, "-p", "--port PORT", "port to listen on (default: 9292)")
      # Before --config, which it would replace as its opposite.
      options.on("--no-config", "read no configuration file") { @no_config = true }
    end

    def add_settings(options)
      option(options, :MaxWorkers, "-w", "--workers NUMBER", "number of worker processes")
      options.on("-t", "--threads MIN:MAX", "threads per worker; MAX counts (default: 1)") do |text|
        @settings[:MaxThreads] = Option::BY_NAME[:MaxThreads].coerce(text[/\A\d+:(\d+)\z/, 1] || text, "-t")
      end
      options.on("-d", "-D", "--daemonize", "run in the background, once the server listens") { @daemonize = true }
    end

    # What names a server, and its configuration.
    def add_finding(options)
      option(options, :ConfigFile, "-c", "--config FILE", "configuration file (default: config/fastrack.rb, if it exists)")
      options.on("-C FILE", "Puma's configuration file (default: config/puma.rb, if there is no config/fastrack.rb)") do |path|
        next @no_config = true if path == "-"

        @puma = true
        @settings[:ConfigFile] = Option::BY_NAME[:ConfigFile].coerce(path, "-C")
      end
      option(options, :Pid, "-P", "--pid FILE", "pid file of the master")
      options.on("--control PATH", "socket of the server's monitor") { |path| set("ControlPath", path) }
      options.on("-e", "-E", "--environment NAME", "environment (default: RACK_ENV, RAILS_ENV or development)") do |name|
        @environment = name
      end
      options.on("-O", "--option NAME=VALUE", "set any option by its name: see docs/options.md") do |text|
        name, value = text.split("=", 2)
        raise Error, "-O needs NAME=VALUE; got #{text.inspect}" if name.to_s.empty?

        set(name, value.nil? || value)
      end
    end

    def option(options, name, *description)
      options.on(*description) { |value| @settings[name] = Option::BY_NAME.fetch(name).coerce(value, description.first) }
    end

    def set(name, value)
      option = Option.find(name)
      raise Error, "unknown option #{name}#{Error.suggestion(name, Option::BY_NAME.keys)}" unless option

      @settings[option.name] = option.coerce(value, "-O #{name}")
    end
  end
end
