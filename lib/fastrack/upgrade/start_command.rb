# frozen_string_literal: true

require "rbconfig"

module Fastrack
  # How this process was started: the command, the folder and the environment. They are what starts a new master, and have
  # to be looked at early: rackup takes the words out of ARGV that it understands, Bundler and the app change ENV.
  class StartContext
    # How Bundler's environment_preserver.rb names what its variables were before, and what it writes for none.
    SAVED = "BUNDLER_ORIG_"
    SAVED_NIL = "BUNDLER_ENVIRONMENT_PRESERVER_INTENTIONALLY_NIL"
    private_constant :SAVED, :SAVED_NIL

    # @return [Array<String>] the program and its arguments
    attr_reader :command
    # @return [String] the folder, by the name that it was entered by: a symbolic link leads to where it points by then
    attr_reader :directory
    # @return [Hash{String => String}]
    attr_reader :environment

    class << self
      # Looks at this process.
      def capture
        @current ||= new
      end
      alias current capture
    end

    # @param proc_dir [String] where proc(5) describes this process; other systems have no such thing
    def initialize(proc_dir: "/proc/self")
      @proc_dir = proc_dir
      words = list("cmdline")
      intact = intact?(words)
      environment = intact ? initial_environment : ENV.to_h
      @directory = logical_directory(environment).freeze
      words = rebuilt(words.first) unless intact
      bundled = bundled?(environment)
      @environment = (bundled ? without_bundler(environment) : environment).freeze
      @command = (bundled ? [RbConfig.ruby, environment["BUNDLE_BIN_PATH"], "exec", *words] : words).freeze
    end

    # Where this process was sent to / before it could be looked at (rackup --daemonize), there is only the shell's word for
    # the folder.
    def daemonized
      given = @environment["PWD"].to_s
      @directory = given.dup.freeze if @directory == "/" && given.start_with?("/") && File.directory?(given)
    end

    private

    # The kernel's lists are of strings that end with a null byte.
    def list(name)
      File.binread(File.join(@proc_dir, name)).force_encoding(Encoding.default_external).chomp("\0").split("\0", -1)
    rescue SystemCallError
      []
    end

    # A process title overwrites the command line and the environment. As long as there is none, the first word is the
    # program that runs here.
    def intact?(words)
      program = which(words.first.to_s)
      !program.nil? && File.identical?(program, File.join(@proc_dir, "exe"))
    end

    def which(word)
      return word if word.include?("/") && File.executable?(word)

      ENV.fetch("PATH", "").split(File::PATH_SEPARATOR).map { |dir| File.join(dir, word) }
         .find { |path| File.file?(path) && File.executable?(path) }
    end

    def initial_environment
      list("environ").filter_map { |pair| pair.split("=", 2) if pair.include?("=") }.to_h
    end

    # Whether this process was started by `bundle exec` for the folder that it is in. It is to be so again: with the
    # Gemfile that is there by then, which Bundler's variables do not name.
    def bundled?(environment)
      gemfile, program = environment.values_at("BUNDLE_GEMFILE", "BUNDLE_BIN_PATH")
      return false unless gemfile && program && File.file?(program) && environment.any? { |name, _| name.start_with?(SAVED) }

      "#{File.realpath(@directory)}/".start_with?("#{File.dirname(File.realpath(gemfile))}/")
    rescue SystemCallError
      false
    end

    # Bundler keeps what its variables were before.
    def without_bundler(environment)
      saved, rest = environment.partition { |name, _| name.start_with?(SAVED) }.map(&:to_h)
      rest.merge(saved.transform_keys { |name| name.delete_prefix(SAVED) }).reject { |_, value| value == SAVED_NIL }
    end

    # The shell's name for the folder counts as long as it is the same folder.
    def logical_directory(environment)
      given = environment["PWD"].to_s
      given.start_with?("/") && File.identical?(given, ".") ? given : Dir.pwd
    end

    # `bundle exec` sets a title of the words that it has run; where nobody has taken any from ARGV, they are still there.
    def rebuilt(title)
      words = [$PROGRAM_NAME, *ARGV]
      words = title.split if title && title != words.join(" ") && which(title.split.first.to_s)
      # A program that was found by its name is to be found anew: another version of it, maybe.
      [RbConfig.ruby, "-S", name_in_path(words.first), *words.drop(1)]
    end

    def name_in_path(program)
      name = File.basename(program)
      found = which(name)
      found && File.identical?(found, program) ? name : program
    end
  end
end
