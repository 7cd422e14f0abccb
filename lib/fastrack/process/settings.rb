# frozen_string_literal: true

require_relative "../error"
require_relative "../configuration/options"
require_relative "../upgrade/start_command"

module Fastrack
  # What the configuration says about the master's own process: folder, umask, the files that stdout and stderr go to, and
  # whether it may make its workers another user's.
  class ProcessSettings
    # Descriptors with fewer of which a busy server may have to turn clients away.
    FEW_DESCRIPTORS = 10_000

    # @return [String, nil] what the system allows too little of, even so
    def self.shortage
      limit = Process.getrlimit(:NOFILE).first
      "only #{limit} open files are allowed, of which each client takes one (RLIMIT_NOFILE)" if limit < FEW_DESCRIPTORS
    end

    # @param configuration [Configuration]
    def initialize(configuration)
      @configuration = configuration
      @files = {}
    end

    # Does everything but #redirect, so that what is still wrong after it is said where the user looks.
    #
    # @raise [ConfigurationError] names the word that does not fit this machine, and where it was written
    def enter
      check_user
      check_directory
      %i[StdoutPath StderrPath].each { |name| open_file(name) }
      enter_directory
      File.umask(@configuration.umask) if @configuration.umask
      raise_file_limit
    end

    # From now on, what is written to stdout and stderr goes into files.
    #
    # @param otherwise [IO, nil] where it goes if there is no such file; nil: where it went
    def redirect(otherwise = nil)
      { StdoutPath: $stdout, StderrPath: $stderr }.each do |name, stream|
        stream.flush
        file = @files.fetch(name, otherwise)
        next unless file

        stream.reopen(file)
        # Which it has from the file now; a log is read while it is written.
        stream.sync = true
      end
      @files.each_value(&:close)
      @files.clear
    end

    private

    def check_user
      user = @configuration.user
      refuse(:User, "only root may become #{user.name}") if user && !user.attainable?
    end

    # Before anything else is done, so that a reload that fails changes nothing.
    def check_directory
      return unless @configuration.working_directory

      folder = File.stat(directory)
      raise Errno::ENOTDIR unless folder.directory?
      raise Errno::EACCES unless folder.executable?
    rescue SystemCallError => e
      refuse(:WorkingDirectory, "cannot enter #{directory}: #{reason(e)}")
    end

    # By the name that was given: a link there may lead elsewhere when a new master looks (`current`, after a deploy).
    def enter_directory
      return unless @configuration.working_directory

      Dir.chdir(directory)
      ENV["PWD"] = directory
    end

    # One that is not absolute is seen from where the server was started, after a reload as well.
    def directory
      given = @configuration.working_directory
      given ? File.expand_path(given, StartContext.current.directory) : Dir.pwd
    end

    def open_file(name)
      return unless (given = @configuration.public_send(Option::BY_NAME[name].word))

      path = File.expand_path(given, directory)
      @files[name] = file = File.open(path, "a")
      # The workers open it anew when the log is rotated.
      user = @configuration.user
      file.chown(user.uid, user.gid) if user && file.stat.file? && Process.euid.zero?
    rescue SystemCallError => e
      refuse(name, "cannot write to #{path}: #{reason(e)}")
    end

    # Each client takes a descriptor, and what a shell gives (1024, for programs that use select(2)) is few. Where the
    # system does not let us, it stays at that.
    def raise_file_limit
      soft, hard = Process.getrlimit(:NOFILE)
      Process.setrlimit(:NOFILE, hard, hard) if soft < hard
    rescue SystemCallError
      nil
    end

    def refuse(name, message)
      raise ConfigurationError, "#{@configuration.source(name)}: #{message}"
    end

    def reason(error)
      SystemCallError.new(nil, error.errno).message.downcase
    end
  end
end
