# frozen_string_literal: true

require_relative "cli/app_file"
require_relative "cli/arguments"
require_relative "cli/daemon"
require_relative "configuration"
require_relative "configuration/app_environment"
require_relative "error"
require_relative "launcher"
require_relative "process/settings"
require_relative "upgrade/old_master"
require_relative "version"

module Fastrack
  # The `fastrack` command.
  class CLI
    # @param arguments [Array<String>]
    # @return [Integer] the exit status; an error is one line on stderr
    def self.run(arguments)
      return tune(arguments.drop(1)) if arguments.first == "tune"
      return print_reference(*arguments) if %w[man completion].include?(arguments.first) && (arguments & %w[-h --help]).empty?

      new(Arguments.new(arguments)).run
    rescue Error => e
      # What users have typed may be in it, which a terminal would take for orders.
      warn "fastrack: #{e.message.scrub("?").gsub(/[^[:print:]\n\t]/, "?")}"
      1
    end

    def self.tune(arguments)
      require_relative "tune/command"
      Tune::Command.run(arguments)
    end
    private_class_method :tune

    # `fastrack man` and `fastrack completion SHELL`
    def self.print_reference(command, shell = "", *)
      require_relative "cli/reference"
      puts Reference.text(command, shell)
      0
    end
    private_class_method :print_reference

    # @param arguments [Arguments]
    def initialize(arguments)
      @arguments = arguments
    end

    # @return [Integer]
    # @raise [Error]
    def run
      case @arguments.action
      when :help then puts(@arguments.help)
      when :version then puts("Fastrack #{VERSION} (Ruby #{RUBY_VERSION}, Rack #{Rack.release})")
      when :check then check
      when :serve then serve
      else return control
      end
      0
    end

    private

    # For the ConfigFile and the app to read.
    def environment
      AppEnvironment.settle(@arguments.environment, default: AppEnvironment::DEFAULT)
      AppEnvironment.name
    end

    def app
      environment
      $LOAD_PATH.unshift(*@arguments.load_path)
      @arguments.libraries.each { |library| require library }
      AppFile.new(@arguments.app_file)
    rescue LoadError => e
      raise Error, "-r: #{e.message}"
    end

    # Options and overrides, see Configuration. In development the default is to listen on localhost.
    def settings
      host = environment == "development" ? "localhost" : Option::DEFAULTS[:Host]
      overrides = @arguments.overrides(host)
      given = { **overrides.slice(:ConfigFile), Host: host, command: { puma: @arguments.puma?, no_config: @arguments.no_config? }, user_supplied_options: [] }
      given[:environment] = @arguments.environment if @arguments.environment
      [given, overrides]
    end

    def serve
      # A new master runs in the background if the old one does.
      daemon = Daemon.detach if @arguments.daemonize? && !ENV.key?(OldMaster::VARIABLE)
      launcher = Launcher.new(app, *settings)
      launcher.run(background: !daemon.nil?) { daemon&.started }
    end

    # @return [Integer]
    def control
      require_relative "cli/control"
      Control.new(@arguments, *settings).run
    end

    # Does all that a start does before it listens, so that it can run beside the server.
    def check
      app = self.app
      options, overrides = settings
      configuration = Configuration.new(options, overrides: overrides)
      ProcessSettings.new(configuration).apply
      puts "configuration: #{Log.count(configuration.max_workers, "worker")} at #{configuration.addresses.join(", ")}"
      require_relative "native"
      load_app(app, configuration)
      puts "app: loaded"
      [*configuration.oversights, *ProcessSettings.shortage].each { |line| puts line }
    end

    def load_app(app, configuration)
      configuration.load_app(app)
    rescue Error
      raise
    rescue StandardError, ScriptError => e
      raise Error, "the app does not load: #{e.full_message(highlight: false, order: :top)}".chomp
    end
  end
end
