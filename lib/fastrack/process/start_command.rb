# frozen_string_literal: true

require "rbconfig"
require_relative "../text"
require_relative "linked_directory"
require_relative "pid_file"

module Fastrack
  # The command, directory and environment of this process's start, for the start of a new master. All three are read early, because rackup
  # removes its options from ARGV, and Bundler and the app change ENV.
  class StartCommand
    # Bundler's environment_preserver.rb saves variables with this prefix. This value stands for an unset variable.
    SAVED = "BUNDLER_ORIG_"
    SAVED_NIL = "BUNDLER_ENVIRONMENT_PRESERVER_INTENTIONALLY_NIL"
    private_constant :SAVED, :SAVED_NIL

    # @return [Array<String>] the program and its arguments
    attr_reader :command
    # @return [String] with its symbolic links, which may have other targets at the next start
    attr_reader :directory
    # @return [String] without symbolic links; of the release that rackup has loaded
    attr_reader :physical
    # @return [Hash{String => String}]
    attr_reader :environment
    # @return [Array<String>] folders of libraries, absolute
    attr_reader :load_path

    class << self
      # Reads command, directory and environment, once.
      def capture
        @current ||= new
      end
      alias current capture

      # @return [String] the shell's path of the working directory, if it is right. The path keeps symbolic links, which may have other
      #   targets later
      def logical_directory(environment = ENV)
        given = environment["PWD"].to_s
        Text.utf8(given.start_with?("/") && File.identical?(given, ".") ? given : Dir.pwd)
      end
    end

    # @param proc_dir [String] see proc(5); only Linux has this directory
    def initialize(proc_dir: "/proc/self")
      @proc_dir = proc_dir
      words = list("cmdline")
      @intact = running?(words)
      environment = intact? ? initial_environment : current_environment
      @physical = Text.utf8(Dir.pwd)
      @load_path = $LOAD_PATH.map { |folder| File.expand_path(folder) }.freeze
      @script = File.expand_path($PROGRAM_NAME).freeze
      @directory = named_directory(environment, words).dup.freeze
      words = rebuilt(words.first) unless intact?
      @bundled = bundled?(environment)
      @environment = (@bundled ? without_bundler(environment) : environment).freeze
      @command = (@bundled ? [RbConfig.ruby, environment["BUNDLE_BIN_PATH"], "exec", *words] : words).freeze
    end

    # @return [Boolean] whether command and environment are the original ones, not changed by rackup, Bundler or the app
    def intact? = @intact

    # rackup --daemonize enters / before the directory is read. Then only PWD has the directory.
    def daemonized
      given = @environment["PWD"].to_s
      @directory = given.dup.freeze if @directory == "/" && given.start_with?("/") && File.directory?(given)
    end

    # Called with another name of the start's directory. Where a link is in it, and in no name before, that name counts from now on.
    #
    # @param path [String]
    def known_as(path)
      @directory = path.dup.freeze if @directory == Text.utf8(File.realpath(@directory)) && File.identical?(path, @directory)
    rescue SystemCallError
      # The directory has been removed.
      nil
    end

    # Enters the directory, and sets PWD to its name.
    def enter
      # It may have been moved, replaced or removed.
      return unless File.directory?(directory)

      Dir.chdir(directory)
      ENV["PWD"] = directory
    end

    # @return [Array<String>] absolute paths of programs that a new start runs, and of the folders in which it looks them up
    def programs
      bundler = @command[1] if @bundled
      [RbConfig.ruby, @script, *bundler, *[@command.first, *(File.basename(@script) if @bundled || !intact?)].flat_map { |name| looked_up(name) }]
    end

    # @return [String, nil] the Gemfile that a new start reads; nil without Bundler
    def gemfile
      return unless $LOADED_FEATURES.any? { |file| file.end_with?("/bundler.rb", "/bundler/setup.rb") }

      given = @environment["BUNDLE_GEMFILE"].to_s
      return File.expand_path(given, @directory) unless given.empty?

      folders = [@directory]
      folders << File.dirname(folders.last) until folders.last == "/"
      folders.product(%w[gems.rb Gemfile]).map { |parts| File.join(*parts) }.find { |file| File.file?(file) }
    end

    # Replaces this process by a new start, with the current ENV. No at_exit hook runs.
    #
    # @param pid_files [Array<String>] this server's pid files, which rackup would take for another server's
    def run_again(pid_files)
      pid_files.each { |path| PidFile.new(path).remove }
      program, *arguments = command
      Process.exec([program, program], *arguments, chdir: directory)
    end

    private

    # The name that the start has given to the working directory, with links. A shell's PWD has it; else a path of the command line or of
    # Bundler, or a link beside the releases.
    def named_directory(environment, words)
      found = self.class.logical_directory(environment)
      return found if found != @physical

      links = LinkedDirectory.new(@physical)
      links.among([*environment["BUNDLE_GEMFILE"], *words]) || (links.beside if environment["PWD"].to_s.empty?) || found
    end

    # The kernel ends each string with a null byte.
    def list(name)
      File.binread(File.join(@proc_dir, name)).chomp("\0").split("\0", -1).map { |text| Text.utf8(text) }
    rescue SystemCallError
      []
    end

    # Whether the words are the original command line. A process title overwrites command line and environment. Without a title the first
    # word is the running program.
    def running?(words)
      program = which(words.first.to_s)
      !program.nil? && File.identical?(program, File.join(@proc_dir, "exe"))
    end

    def which(word)
      return word if word.include?("/") && File.executable?(word)

      folders.map { |folder| File.join(folder, Text.utf8(word)) }.find { |path| program?(path) }
    end

    # @return [Array<String>] a program, and the folders of PATH where another one of its name would count
    def looked_up(name)
      return [File.expand_path(name, @directory)] if name.include?("/")

      before = folders.take_while { |folder| !program?(File.join(folder, name)) }
      [*before, *which(name)].map { |path| File.expand_path(path, @directory) }
    end

    def folders = ENV.fetch("PATH", "").b.split(File::PATH_SEPARATOR).map { |folder| Text.utf8(folder) }
    def program?(path) = File.file?(path) && File.executable?(path)

    def initial_environment
      list("environ").filter_map { |pair| pair.partition("=").values_at(0, 2) if pair.include?("=") }.to_h
    end

    # rackup's default for RACK_ENV is not passed on as the user's choice.
    def current_environment = ENV.to_h.reject { |name, value| name == "RACK_ENV" && value == "development" }

    # Whether `bundle exec` started this process for its directory. Then the new master is also started by `bundle exec`, and finds the
    # Gemfile of the new release.
    def bundled?(environment)
      gemfile, program = environment.values_at("BUNDLE_GEMFILE", "BUNDLE_BIN_PATH")
      return false unless gemfile && program && File.file?(program) && environment.any? { |name, _| name.start_with?(SAVED) }

      folders = [@directory, File.dirname(File.realpath(gemfile))].map { |folder| "#{File.realpath(folder)}/".b }
      folders.first.start_with?(folders.last)
    rescue SystemCallError
      false
    end

    def without_bundler(environment)
      saved, rest = environment.partition { |name, _| name.start_with?(SAVED) }.map(&:to_h)
      rest.merge(saved.transform_keys { |name| name.delete_prefix(SAVED) }).reject { |_, value| value == SAVED_NIL }
    end

    # Command without /proc's original. The process title of `bundle exec` has all arguments, also arguments that were removed from ARGV.
    def rebuilt(title)
      words = [$PROGRAM_NAME, *ARGV].map { |word| Text.utf8(word) }
      titled = title.to_s.b.split.map { |word| Text.utf8(word) }
      words = titled if titled.any? && title != words.join(" ") && which(titled.first)
      # A program from PATH is looked up in PATH again, because a new version may be there.
      [RbConfig.ruby, "-S", name_in_path(words.first), *words.drop(1)]
    end

    def name_in_path(program)
      name = File.basename(program)
      found = which(name)
      found && File.identical?(found, program) ? name : program
    end
  end
end
