# frozen_string_literal: true

require_relative "../configuration/options"
require_relative "../error"
require_relative "../text"

module Fastrack
  # Puma's flags for the `fastrack` command: those that are an option here, and what to write in the place of others.
  module PumaFlags
    # A flag without a value means true.
    OPTIONS = {
      "--dir PATH" => :WorkingDirectory, "--preload" => :PreloadApp, "--early-hints" => :EarlyHints, "--redirect-stdout FILE" => :StdoutPath,
      "--redirect-stderr FILE" => :StderrPath, "--control-token TOKEN" => :ControlToken, "--persistent-timeout SECONDS" => :KeepAliveTimeout
    }.freeze

    # What happens anyway.
    WITHOUT_EFFECT = [%w[-q --quiet], %w[-s --silent], %w[--redirect-append]].freeze

    INSTEAD = {
      ["-S", "--state PATH"] => "write state_path PATH into the ConfigFile; `fastrack status` goes by the pid file, -P",
      ["--tag NAME"] => "write tag NAME into the ConfigFile",
      ["--fork-worker"] => "leave it out: workers are forked from a preloaded master",
      ["--prune-bundler"] => "write preload_app false into the ConfigFile"
    }.freeze

    # @return [Array<String>] directories of -I
    def load_path = @load_path ||= []

    # @return [Array<String>] what -r wants to be required before the app
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
end
