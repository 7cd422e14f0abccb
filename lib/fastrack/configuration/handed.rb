# frozen_string_literal: true

require_relative "../configuration"
require_relative "../listener/address"
require_relative "../process/safe_file"
require_relative "../process/start_command"
require_relative "../puma/extras"
require_relative "../text"

module Fastrack
  # A configuration as plain data (PlainData). Generation 0 reads the ConfigFile, in the folder and with the environment of its release, and
  # hands this to the master.
  module Reading
    # Options with paths that are the release's. Addresses, `pid` and `control_path` are the server's: they keep the names that they have
    # in the ConfigFile.
    PATHS = %i[PublicFiles SendfileRoot ACMEFolder StdoutPath StderrPath AccessLog].freeze
    SIZES = %i[MaxMemoryPerChild MaxMemory].freeze

    module_function

    # @param configuration [Configuration]
    # @return [Hash{String => Object}]
    def of(configuration)
      {
        "values" => Option::ALL.to_h { |option| [option.name.to_s, plain(option, configuration.value(option.name))] },
        "puma" => configuration.puma&.to_plain, "hints" => configuration.startup_hints, "threads_line" => configuration.threads_line,
        "file" => configuration.file, "environment" => AppEnvironment::VARIABLES.to_h { |name| [name, ENV.fetch(name, nil)] }, **configuration.facts
      }
    end

    # @param configuration [Configuration]
    # @return [Array<String>] absolute paths of files that the master makes or reads, and its addresses
    def names(configuration)
      logs = %i[StdoutPath StderrPath AccessLog].filter_map { |name| configuration.value(name) } - ["-"]
      [*logs, *configuration.pid, *configuration.puma&.state&.first, *configuration.control&.path].map { |path| Text.expand(path) } +
        configuration.addresses.grep_v(Proxy::InnerAddress).flat_map do |address|
          [address.to_s, *(address.file if address.path), *address.certificates.flatten.map { |path| Text.expand(path) }]
        end
    end

    # @return the value of an option, which .value turns back
    def plain(option, value)
      return value unless value
      # The master does not call it.
      return true if option.hook? || %i[Logger WarmUp].include?(option.name)

      case option.name
      when :Listen then value.map { |address| plain_address(address) }
      when :User, :ProxyUser then value.to_a
      when :ACMEAccount then value.join(":")
      when :WorkingDirectory then Text.expand(value, StartCommand.current.directory)
      when *SIZES then "#{value}b"
      when :PublicLinks then value.map { |path| Text.expand(path) }
      when *PATHS then value == "-" ? value : Text.expand(value)
      else value
      end
    end

    def plain_address(address)
      settings = address.settings.transform_keys(&:to_s)
      %w[cert key].each { |name| settings[name] &&= settings[name].map { |path| Text.expand(path) } }
      place = address.path ? "unix:#{address.path}" : "#{"ssl://" if address.tls?}#{address}"
      [place, settings]
    end

    # @param user [#call] makes a UserGroup of its name and numbers
    # @return a value of the option's type
    # @raise [ConfigurationError]
    def value(option, plain, user)
      return plain if plain.nil? || option.name == :Logger || option.hook?

      case option.name
      when :Listen then plain.map { |place, settings| Address.parse(place, settings) }.freeze
      when :User, :ProxyUser then user.call(option, plain)
      else option.coerce(plain)
      end
    end
    private_class_method :plain, :plain_address
  end

  # The configuration that generation 0 has handed to the master. Blocks of the ConfigFile are not here: these readers tell only whether
  # there is one.
  class HandedConfiguration < Configuration
    # At the start of the server. The environment is the app's, which the ConfigFile may have named.
    #
    # @param given see Configuration
    # @param overrides see Configuration
    # @param plain see #initialize
    # @param roots [RootsProgram::Start, nil] what a re-exec keeps
    def self.at_start(given, overrides, plain, roots = nil)
      AppEnvironment::VARIABLES.each { |name| ENV[name] = plain.fetch("environment")[name] }
      new(Unread.new(given.to_h { |key, value| [key.to_sym, value] }, overrides, roots), plain)
    end

    # What a start knows before the ConfigFile is read.
    class Unread
      # @return [UserGroup, nil]
      attr_reader :user, :proxy_user

      def initialize(given, overrides, roots)
        @given = given
        @overrides = overrides
        @user = roots&.user
        @proxy_user = roots&.proxy_user
      end

      def logger = nil
    end
    private_constant :Unread

    # @param before [Configuration] of the same start
    # @param plain [Hash{String => Object}] see Reading. Everything but its form is checked here, because it may come from a process of the
    #   app's user
    # @raise [ConfigurationError]
    def initialize(before, plain)
      before.instance_variables.each { |name| instance_variable_set(name, before.instance_variable_get(name)) }
      @control = nil
      @users = [before.user, before.proxy_user].compact
      # An object of the master's. That of the ConfigFile is in generation 0 and the workers.
      @logger = before.logger
      take(plain)
      keep_users(before)
      find_control
    rescue ConfigurationError
      raise
    rescue ArgumentError, TypeError, KeyError, NoMethodError => e
      raise ConfigurationError, "generation 0 has handed over settings of another form: #{e.message.lines.first}"
    end

    # @return [Array<String>]
    attr_reader :startup_hints
    # @return [String, nil]
    attr_reader :threads_line

    # @return [Logger, nil] that of the start
    def logger = (@logger if super)

    # Reads the ConfigFile for one of its blocks, in a process that another program is to replace.
    #
    # @param word [Symbol]
    def call_hook(word, *arguments)
      return unless public_send(word)

      unless SafeFile.roots?(file)
        return Log.line("#{word} is not called: user #{user.name} can change #{file}", :warn)
      end
      Configuration.new(@given, overrides: @overrides, output: QUIET, warnings: QUIET).call_hook(word, *arguments)
    end

    private

    QUIET = Object.new.tap { |output| def output.puts(*) = nil }
    private_constant :QUIET

    def take(plain)
      @sources = plain.fetch("sources").transform_keys(&:to_sym)
      @values = plain.fetch("values").to_h do |name, value|
        option = Option::BY_NAME.fetch(name.to_sym)
        [option.name, Reading.value(option, value, method(:user_of))]
      end.freeze
      @development, @rhebok, @rails_threads, @auto_workers = plain.fetch("switches").map { |switch| switch == true }
      @startup_hints = plain.fetch("hints").map { |line| line.to_str }
      @threads_line = plain.fetch("threads_line")&.to_str
      @file = plain.fetch("file")&.to_str
      @puma = plain.fetch("puma")&.then { |extras| PumaExtras.of_plain(extras) }
    end

    # Root stays no root because the app's user leaves an option out.
    def keep_users(before)
      return unless SafeFile.app_user

      name = %i[user proxy_user].find { |one| public_send(one) != before.public_send(one) } or return
      raise ConfigurationError, "#{name}: only a start of the server can change the user"
    end

    # Root becomes no other user because the app's user says so.
    def user_of(option, plain)
      found = UserGroup.new(*plain)
      return found if !SafeFile.app_user || @users.include?(found)

      raise ConfigurationError, "#{source(option.name)}: only a start of the server can change the user"
    end
  end
end
