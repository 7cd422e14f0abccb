# frozen_string_literal: true

require "rbconfig"

module Fastrack
  # How this process was started: the command, the folder and the environment. They are what starts a new master, and have
  # to be looked at early: rackup takes the words out of ARGV that it understands, Bundler and the app change ENV.
  class StartContext
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
      @environment = (intact ? initial_environment : original_environment).freeze
      @directory = logical_directory.freeze
      @command = (intact ? words : rebuilt(words.first)).freeze
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

    def original_environment
      defined?(::Bundler) && ::Bundler.respond_to?(:original_env) ? ::Bundler.original_env.to_h : ENV.to_h
    end

    # The shell's name for the folder counts as long as it is the same folder.
    def logical_directory
      given = @environment["PWD"].to_s
      given.start_with?("/") && File.identical?(given, ".") ? given : Dir.pwd
    end

    # `bundle exec` sets a title of the words that it has run; where nobody has taken any from ARGV, they are still there.
    def rebuilt(title)
      words = [$PROGRAM_NAME, *ARGV]
      words = title.split if title && title != words.join(" ") && which(title.split.first.to_s)
      # A program that Bundler has found by its name is to be found anew, in the bundle of that day.
      words = [name_in_path(words.first), *words.drop(1)]
      ENV["BUNDLE_BIN_PATH"] ? [RbConfig.ruby, ENV["BUNDLE_BIN_PATH"], "exec", *words] : [RbConfig.ruby, "-S", *words]
    end

    def name_in_path(program)
      name = File.basename(program)
      found = which(name)
      found && File.identical?(found, program) ? name : program
    end
  end
end
