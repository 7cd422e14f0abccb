# frozen_string_literal: true

require "rack"
require_relative "backtrace"
require_relative "cli/arguments"
require_relative "cli/help"
require_relative "configuration"
require_relative "configuration/app_environment"
require_relative "error"
require_relative "launcher"
require_relative "master/process_setup"
require_relative "proxy"
require_relative "rack/temporary_folder"
require_relative "text"
require_relative "upgrade/masters"
require_relative "upgrade/seat"
require_relative "version"

module Fastrack
  # The `fastrack` command.
  class CLI
    # @param arguments [Array<String>]
    # @return [Integer] the exit status; an error is one line on stderr
    def self.run(arguments)
      return tune(arguments.drop(1)) if arguments.first == "tune"

      new(Arguments.new(arguments)).run
    rescue StartFailed => e
      e.status
    rescue Error => e
      # The message may have typed text, with control characters for a terminal.
      warn "fastrack: #{e.message.scrub("?").gsub(/[^[:print:]\n\t]/, "?")}"
      1
    end

    def self.tune(arguments)
      require_relative "tune/command"
      Tune::Command.run(arguments)
    end
    private_class_method :tune

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

    # Sets the environment variables that the ConfigFile and the app read.
    def environment
      AppEnvironment.settle(@arguments.environment, default: AppEnvironment::DEFAULT)
      AppEnvironment.name
    end

    def app
      environment
      AppFile.new(@arguments.app_file, @arguments.libraries, @arguments.load_path)
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
      # A new master is in the background if the old one is.
      daemon = Daemon.detach if @arguments.daemonize? && !ENV.key?(OldMaster::VARIABLE) && !Seat.taken?
      launcher = Launcher.new(app, *settings)
      launcher.run(background: !daemon.nil?, waiting: daemon) { daemon&.started }
    end

    # @return [Integer]
    def control
      require_relative "cli/control"
      Control.new(@arguments, *settings).run
    end

    # Does all steps of a start before listening, so that the check can run beside the server.
    def check
      app = self.app
      app.extend_load_path
      options, overrides = settings
      configuration = Configuration.new(options, overrides: overrides)
      ProcessSetup.new(configuration).apply
      puts "configuration: #{Log.count(configuration.max_workers, "worker")} at #{configuration.addresses.grep_v(Proxy::InnerAddress).join(", ")}"
      require_relative "native"
      check_proxy(configuration) if configuration.proxy?
      app = load_app(app, configuration)
      puts "app: loaded"
      warm_up(app, configuration) if @arguments.warm_up?
      [*configuration.startup_hints, *ProcessSetup.shortage, *TemporaryFolder.shortage].each { |line| puts line }
    end

    def check_proxy(configuration)
      require_relative "proxy/settings"
      warnings = Proxy::Settings.check(configuration)
      puts "proxy: #{warnings.empty? ? "its files are right" : warnings.join("; ")}"
      if Proxy.made_by_apps_user?(configuration)
        return puts("proxy: it runs as the app's user, who can read its private keys: start as root, with ProxyUser beside User")
      end

      Proxy.keys_of_app(configuration).each do |path|
        puts "proxy: the app's user #{configuration.user.name} can read the private key #{path}: put it where only root can read it"
      end
    end

    # @raise [Error] if a page has failed
    def warm_up(app, configuration)
      raise Error, "--warm-up needs warm_up in the configuration file, with paths or alone" unless configuration.warm_up

      require_relative "warm_up"
      report = WarmUp.new(configuration, app).run
      raise Error, report.failure if report.failure

      puts report.line
    end

    def load_app(app, configuration)
      configuration.load_app(app)
    rescue Error
      raise
    rescue StandardError, ScriptError => e
      raise Error, "the app does not load: #{Backtrace.text(e)}"
    end
  end

  # An app that is not loaded yet: config.ru, or Ruby that defines the app as a constant (see Rack::Builder).
  class AppFile
    # rackup's middleware for each environment. Other environments, such as production, have none.
    MIDDLEWARE = {
      "development" => %i[CommonLogger ShowExceptions Lint TempfileReaper],
      "deployment" => %i[CommonLogger TempfileReaper]
    }.freeze

    # @param path [String, nil] as given on the command line
    # @param libraries [Array<String>] to be required before
    # @param load_path [Array<String>] folders of -I
    def initialize(path, libraries = [], load_path = [])
      @path = path
      @libraries = libraries
      @load_path = load_path
    end

    # Called in the processes that read the ConfigFile and load the app. The folders are the app's, so the master does without.
    def extend_load_path = $LOAD_PATH.unshift(*@load_path)

    # Loads the app, anew at each call.
    #
    # @param default_middleware [Boolean] whether to add rackup's middleware, for the environment that RACK_ENV names
    # @param path [String, nil] the file if the command line has none; nil: config.ru
    # @return [#call]
    # @raise [Error] when the file is missing or returns no app; also any exception of the file
    def load(default_middleware: true, path: nil)
      @libraries.each { |library| require_library(library) }
      file = Text.expand(@path || path || "config.ru")
      raise Error, "there is no #{file}#{suggestion}" unless File.file?(file)

      # Rack 2 also returns the options in the file.
      app = Rack::Builder.parse_file(file)
      app = app.first if app.is_a?(Array)
      raise Error, "#{file} does not return an app, but #{app.inspect[0, 200]}" unless app.respond_to?(:call)

      names = default_middleware ? MIDDLEWARE.fetch(ENV["RACK_ENV"], []) : []
      names.reverse.inject(app) do |inner, name|
        Rack.const_get(name).new(inner, *(name == :CommonLogger ? [$stderr] : []))
      end
    end

    private

    def require_library(name)
      require name
    rescue LoadError => e
      raise Error, "-r: #{e.message}"
    end

    # A hint for a misspelled command.
    def suggestion = @path.to_s.b.match?(/\A[\w-]+\z/) ? Error.suggestion(@path, Help::WORDS) : ""
  end

  # Moves the server into the background. The command waits until the server has started, so that errors appear on the terminal and in the
  # exit status.
  class Daemon
    STARTED = "started"

    # Returns in another process, without a terminal. The calling process exits when the server has started or failed.
    #
    # @return [Daemon]
    def self.detach
      reader, writer = IO.pipe
      wait_for(reader, writer) if fork
      reader.close
      Process.setsid
      # The second fork: a session leader could get a terminal again by opening one.
      exit!(0) if fork
      $stdin.reopen(File::NULL)
      new(writer)
    end

    # Exits without at_exit hooks, because these are the server's.
    def self.wait_for(reader, writer)
      writer.close
      # Reads a fixed number of bytes: a process that the app has forked may keep the pipe open.
      exit!(reader.read(STARTED.bytesize) == STARTED ? 0 : 1)
    end
    private_class_method :wait_for

    # @param writer [IO] to the waiting process
    def initialize(writer)
      @writer = writer
    end

    # Called in forked processes.
    def close = @writer.close

    # Lets the waiting process exit with 0.
    def started
      @writer.write(STARTED)
    rescue SystemCallError
      # The waiting process was killed.
      nil
    ensure
      @writer.close
    end
  end
end
