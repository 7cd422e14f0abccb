# frozen_string_literal: true

require_relative "cli/app_file"
require_relative "cli/check"
require_relative "cli/arguments"
require_relative "cli/daemon"
require_relative "error"
require_relative "handler"
require_relative "configuration/options"
require_relative "upgrade/old_master"
require_relative "version"

module Fastrack
  # The `fastrack` command.
  class Command
    # @param arguments [Array<String>]
    # @return [Integer] the exit status; what is wrong has one line on stderr
    def self.run(arguments)
      new(CommandLine.new(arguments)).run
    rescue Error => e
      warn "fastrack: #{e.message}"
      1
    end

    # @param line [CommandLine]
    def initialize(line)
      @line = line
    end

    # @return [Integer]
    # @raise [Error]
    def run
      case @line.action
      when :help then puts(@line.help)
      when :version then puts("Fastrack #{VERSION} (Ruby #{RUBY_VERSION}, Rack #{Rack.release})")
      when :check then return Check.new(app, *settings).run
      else serve
      end
      0
    end

    private

    # As rackup does, so that an app, and what it loads, finds it there.
    def environment
      ENV["RACK_ENV"] = @line.environment || ENV["RACK_ENV"] || ENV["RAILS_ENV"] || "development"
    end

    def app
      AppFile.new(@line.app_file, environment)
    end

    # Options and overrides, see Configuration. In development nobody else is to reach it, unless the user or the ConfigFile
    # says so.
    def settings
      host = environment == "development" ? "localhost" : Option::BY_NAME.fetch(:Host).default
      overrides = @line.overrides(host)
      [{ **overrides.slice(:ConfigFile), Host: host, user_supplied_options: [] }, overrides]
    end

    def serve
      # A new master is in the background where the old one is.
      daemon = Daemon.detach if @line.daemonize? && !ENV.key?(Predecessor::VARIABLE)
      launcher = Launcher.new(app, *settings)
      launcher.run(background: !daemon.nil?) { daemon&.started }
    end
  end
end
