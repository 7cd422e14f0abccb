# frozen_string_literal: true

require "optparse"
require_relative "../configuration/options"
require_relative "../error"
require_relative "../listener/address"
require_relative "../text"
require_relative "help"

module Fastrack
  # Puma's flags for the `fastrack` command: flags that set an option, and hints for the other flags.
  module PumaFlags
    # A flag without a value means true.
    OPTIONS = {
      "--dir PATH" => :WorkingDirectory, "--preload" => :PreloadApp, "--early-hints" => :EarlyHints, "--redirect-stdout FILE" => :StdoutPath,
      "--redirect-stderr FILE" => :StderrPath, "--control-token TOKEN" => :ControlToken, "--persistent-timeout SECONDS" => :KeepAliveTimeout
    }.freeze

    # Flags for behaviour that Fastrack always has.
    WITHOUT_EFFECT = [%w[-q --quiet], %w[-s --silent], %w[--redirect-append]].freeze

    INSTEAD = {
      ["-S", "--state PATH"] => "write state_path PATH into the ConfigFile; `fastrack status` goes by the pid file, -P",
      ["--tag NAME"] => "write tag NAME into the ConfigFile",
      ["--fork-worker"] => "leave it out: generation 0 has loaded the app, and forks the workers",
      ["--prune-bundler"] => "write preload_app false into the ConfigFile"
    }.freeze

    # @return [Array<String>] directories of -I
    def load_path = @load_path ||= []

    # @return [Array<String>] libraries of -r, to be required before the app
    def libraries = @libraries ||= []

    # Whether no configuration file is to be read.
    def no_config? = @no_config || false

    private

    def add_puma_flags(options)
      options.separator "\nPuma's options:"
      OPTIONS.each { |flag, name| option(options, name, flag, Option::BY_NAME.fetch(name).help) }
      options.on("--log-requests", "write an access log to stdout") { set("AccessLog", "-") }
      options.on("--control-url URL", "unix://PATH or tcp://127.0.0.1:PORT of the monitor") { |url| control_url(url) }
      options.on("-I PATH", "add directories to the load path, separated by colons") { |path| load_path.concat(path.split(":").map { |folder| Text.utf8(folder) }) }
      options.on("-r", "--require LIBRARY", "require a library before the app") { |library| libraries << Text.utf8(library) }
      options.on("-V", "show the version") { @action = :version }
      WITHOUT_EFFECT.each { |flags| options.on(*flags, "no effect, always so") { nil } }
      INSTEAD.each { |flags, text| options.on(*flags, text) { raise Error, "#{flags.join(", ")} is not for this command: #{text}" } }
    end

    def control_url(url)
      case url
      when %r{\Aunix://(.+)} then set("ControlPath", Regexp.last_match(1))
      when %r{\Atcp://} then set("ControlListen", url)
      else raise Error, "--control-url must be unix://PATH or tcp://127.0.0.1:PORT; got #{Text.utf8(url).inspect}"
      end
    end
  end

  # The arguments of the `fastrack` command.
  class Arguments
    include PumaFlags

    # Commands for a running server, and the groups of options in their help. The help of other commands has the groups of serving. All
    # options are accepted, so that those of the start may stay.
    CONTROL = {
      "status" => %i[finding looking], "stats" => %i[finding puma_format], "phased-restart" => %i[finding waiting], "reload" => %i[finding waiting],
      "restart" => %i[finding waiting], "refork" => %i[finding waiting], "stop" => %i[finding waiting], "workers" => %i[finding],
      "profile" => %i[finding profiling]
    }.freeze
    SERVING = %i[places settings finding puma_flags].freeze
    CHECKING = %i[checking places settings finding puma_flags].freeze

    # @return [Hash{String => OptionParser}] by command, "" for none; the gem's man page and completions are made of these
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

    # Whether `check` asks the app for the pages of `warm_up`.
    def warm_up? = @warm_up || false

    # @param arguments [Array<String>] not changed
    # @raise [Error]
    def initialize(arguments)
      @action = :serve
      @settings = {}
      @addresses = []
      rest = parser("", CHECKING | CONTROL.values.flatten).parse(with_change(arguments.map(&:b)))
      @command = rest.first if Help::COMMANDS.key?(rest.first)
      return if %i[help version].include?(@action)

      @action = :check if @command == "check" && rest.shift
      @action = rest.shift.sub("phased-restart", "reload").to_sym if CONTROL.key?(@command)
      @app_file = rest.shift&.then { |path| Text.utf8(path) } unless control?
      raise Error, "only one app: #{Text.utf8(rest.join(" "))} is not expected" unless rest.empty?
    rescue OptionParser::ParseError => e
      raise Error, Text.utf8(e.message)
    end

    # Whether the command is for a running server.
    def control? = CONTROL.key?(@action.to_s)

    def watch? = @watch || false

    def no_wait? = @no_wait || false

    def json? = @json || false

    # @return [Integer, nil] the worker to profile
    attr_reader :worker

    # @return [Integer] how long to profile it
    def seconds = @seconds || 10

    def gvl? = @gvl || false

    # Whether the configuration file is Puma's, with any name.
    def puma? = @puma || false

    def daemonize? = @daemonize

    # @return [String] help of the named command, or of all
    def help = parser_of(@command).help

    def parser_of(command) = parser(Help::COMMANDS.fetch(command, Help::ALL), command == "check" ? CHECKING : CONTROL.fetch(command, SERVING))

    # Settings that override a ConfigFile.
    #
    # @param host [String] to listen on if only a port was given
    # @return [Hash{Symbol => Object}]
    def overrides(host)
      addresses = [*@settings[:Listen], *@addresses]
      addresses << Address.new(path: @settings[:Path]) if @settings.key?(:Path)
      if @settings.key?(:Host) || @settings.key?(:Port) || (@tls && addresses.none?)
        addresses << Address.new(host: @settings.fetch(:Host, host), port: @settings.fetch(:Port, Option::DEFAULTS[:Port]), tls: @tls || false)
      end
      rest = @settings.except(:Listen, :Host, :Port, :Path)
      addresses.empty? ? rest : rest.merge(Listen: addresses.freeze)
    end

    private

    # Takes the change of `workers -1` out, because the parser would take it for an option.
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

    # The only format of `stats`, named so that another one can come.
    def add_puma_format(options)
      options.on("--puma", "Puma's keys, as `pumactl stats` has them (the default)") { nil }
    end

    def add_waiting(options)
      options.on("--no-wait", "send the signal and do not wait for the result") { @no_wait = true }
    end

    def add_profiling(options)
      options.on("--worker NUMBER", Integer, "the worker (default: one that has a request)") { |number| @worker = number }
      options.on("--seconds NUMBER", Integer, "how long to look, 1 to 300 (default: 10)") do |number|
        raise Error, "--seconds must be 1 to 300; got #{number}" unless number.between?(1, 300)

        @seconds = number
      end
      options.on("--gvl", "divide by what threads have to do with the GVL") { @gvl = true }
    end

    def add_checking(options)
      options.on("--warm-up", "ask the app for the pages of warm_up, too") { @warm_up = true }
    end

    def add_places(options)
      # -l is Unicorn's.
      %w[-b -l].zip(["--bind URI", "--listen ADDRESS"]) do |short, long|
        options.on(short, long, "listen on tcp://HOST:PORT, HOST:PORT or PATH; may be repeated") do |text|
          @addresses.concat(Address.list(text))
        rescue ArgumentError => e
          raise Error, "#{short} #{e.message}; got #{Text.utf8(text).inspect}"
        end
      end
      option(options, :Host, "-o", "--host HOST", "address to listen on")
      option(options, :Port, "-p", "--port PORT", "port to listen on (default: 9292)")
      options.on("--tls", "speak TLS there, with a certificate of this machine's own") { @tls = true }
      # Comes before --config, because the parser would take it for the opposite of --config.
      options.on("--no-config", "read no configuration file") { @no_config = true }
    end

    def add_settings(options)
      option(options, :MaxWorkers, "-w", "--workers NUMBER", "number of worker processes")
      options.on("-t", "--threads MIN:MAX", "threads per worker; MAX counts (default: 1; of a Rails app 3)") do |text|
        @settings[:MaxThreads] = Option::BY_NAME[:MaxThreads].coerce(text[/\A\d+:(\d+)\z/, 1] || text, "-t")
      end
      options.on("-d", "-D", "--daemonize", "run in the background, once the server listens") { @daemonize = true }
    end

    # Options that name a server and its configuration.
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
        @environment = Text.utf8(name)
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
      raise Error, "unknown option #{Text.utf8(name.to_s)}#{Error.suggestion(name, Option::BY_NAME.keys)}" unless option

      @settings[option.name] = option.coerce(value, "-O #{Text.utf8(name)}")
    end
  end
end
