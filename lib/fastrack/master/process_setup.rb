# frozen_string_literal: true

require_relative "../configuration/options"
require_relative "../error"
require_relative "../log"
require_relative "../process/proc_stat"
require_relative "../process/safe_file"
require_relative "../process/start_command"
require_relative "../text"

module Fastrack
  # Applies the configuration to the master's process: user, directory, umask, log files, open-file limit.
  class ProcessSetup
    # Open files below which a busy server may have to refuse clients.
    FEW_DESCRIPTORS = 10_000

    # Most open files that macOS gives without a hard limit (setrlimit(2)). For more it returns EINVAL.
    OPEN_MAX = 10_240

    # linux/capability.h
    CAP_KILL = 5
    private_constant :CAP_KILL

    class << self
      # @return [String, nil] a warning about the open-file limit
      def shortage
        limit = Process.getrlimit(:NOFILE).first
        "only #{limit} open files are allowed (RLIMIT_NOFILE), and each client takes one" if limit < FEW_DESCRIPTORS
      end

      # Enters `working_directory`, or the directory of the start, if the current directory was removed, as old releases are.
      #
      # @param configuration [Configuration]
      # @raise [Error]
      def find_directory(configuration)
        Dir.pwd
      rescue Errno::ENOENT
        start = StartCommand.current.directory
        places = [configuration.working_directory&.then { |given| Text.expand(given, start) }, start].compact
        found = places.find { |place| File.directory?(place) }
        raise Error, "the directory #{start} of the server's start is gone#{" (so is #{places.first})" if places.size > 1}" unless found

        Dir.chdir(found)
      end

      # Saves the terminal's mode, because a debugger in a killed worker leaves the terminal raw.
      #
      # @return [#call, nil] restores the terminal's mode
      def console_mode
        require "io/console"
        mode = STDIN.console_mode
        # In the background the call would stop this process (SIGTTOU).
        -> { STDIN.console_mode = mode if foreground? }
      rescue SystemCallError, LoadError
        # stdin is no terminal.
        nil
      end

      # Whether a line editor reads the terminal: readline(3) and Reline echo typed characters themselves.
      def line_edited?
        !STDIN.echo?
      rescue SystemCallError, IOError, NoMethodError
        # stdin is no terminal, or io/console is not loaded.
        false
      end

      # Whether this process gets the terminal's signals: INT, and WINCH when the window's size changes.
      def foreground?
        group, _, _, terminals_group = ProcStat.of("self").drop(2)
        group == terminals_group
      rescue SystemCallError
        $stdin.tty?
      end

      # Whether the terminal of this process was closed, or its connection lost. The kernel then sends HUP, and the process has no
      # controlling terminal any more.
      def terminal_closed?
        File.open("/dev/tty", File::RDONLY | File::NOCTTY | File::NONBLOCK).close
        false
      rescue Errno::ENXIO, Errno::EIO
        Log.line("HUP: the terminal is closed, stopping; use -d for a server that outlives it")
        true
      rescue SystemCallError
        # For example, no descriptor is free.
        false
      end
    end

    # @param configuration [Configuration]
    def initialize(configuration)
      @configuration = configuration
      @files = {}
    end

    # Applies all settings except log files for stdout and stderr (#redirect), so that later errors still reach the user.
    #
    # @raise [ConfigurationError] with the setting and where it was written
    def apply
      check_user
      check_directory
      SafeFile.user = @configuration.user
      %i[StdoutPath StderrPath AccessLog].each { |name| open_file(name) }
      enter
    end

    # Applies the settings of a process that uses the files of another one: directory, umask, open-file limit.
    #
    # @raise [ConfigurationError]
    def enter
      check_directory
      enter_directory
      File.umask(@configuration.umask) if @configuration.umask
      raise_file_limit
    end

    # Sends stdout and stderr to their log files.
    #
    # @param otherwise [IO, nil] target of a stream without a log file; nil leaves the stream as it is
    def redirect(otherwise = nil)
      Log.flush
      { StdoutPath: [$stdout, STDOUT], StderrPath: [$stderr, STDERR] }.each do |name, (stream, standard)|
        file = @files.fetch(name, otherwise)
        next unless file

        # The app may have replaced $stdout by an object that is no IO. STDOUT still goes to the file.
        stream = standard unless stream.is_a?(IO)
        stream.reopen(file)
        # Reopening has reset `sync`. Readers follow the log.
        stream.sync = true
      end
      @files.each_value(&:close)
      @files.clear
    end

    # Sets the format of the server's own lines.
    def format_log
      format, logger = @configuration.log_format, @configuration.logger
      return Log.style = nil if format == "plain" && logger.nil?

      require_relative "../process/log_format"
      Log.style = LogFormat.new(format, logger)
    end

    # Opens the access log, which LogFiles reopens.
    #
    # @return [IO, nil] target of the access log
    def access_log
      return STDOUT if @configuration.access_log == "-"

      @files.delete(:AccessLog)&.tap { |file| file.sync = true }
    end

    private

    def check_user
      user = @configuration.user
      return if user.nil? || user.current?

      refuse(:User, "only root may become #{user.name}") unless user.permitted?
      refuse(:User, "root cannot stop processes of #{user.name} without the capability CAP_KILL") unless signals_all?
    end

    # Whether the kernel lets this process send signals to another user's (kill(2)).
    def signals_all?
      ProcStat.capable?("self", CAP_KILL)
    rescue SystemCallError, KeyError
      # Not Linux.
      true
    end

    # Checked first, so that a failed reload changes nothing.
    def check_directory
      return unless @configuration.working_directory

      found = File.stat(directory)
      raise Errno::ENOTDIR unless found.directory?
      raise Errno::EACCES unless found.executable?
    rescue SystemCallError => e
      refuse(:WorkingDirectory, "cannot enter #{directory}: #{SafeFile.reason(e)}")
    end

    # Entered by the configured name: a symbolic link in the name (`current`) may have another target when a new master starts.
    def enter_directory
      return unless @configuration.working_directory

      StartCommand.current.known_as(directory)
      Dir.chdir(directory)
      ENV["PWD"] = directory
    end

    # A relative path starts in the directory of the server's start, also after a reload.
    def directory
      given = @configuration.working_directory
      given ? Text.expand(given, StartCommand.current.directory) : Text.utf8(Dir.pwd)
    end

    def open_file(name)
      given = @configuration.public_send(Option::BY_NAME[name].word)
      return if given.nil? || given == "-"

      path = Text.expand(given, directory)
      # The app's user owns a new log, because workers reopen logs after a rotation.
      user = @configuration.user if Process.euid.zero?
      @files[name] = SafeFile.append(path, user && [user.uid, user.gid], fifo: true)
    rescue SystemCallError => e
      refuse(name, "cannot write to #{path}: #{SafeFile.reason(e)}")
    end

    # Each client takes a descriptor. A shell's limit of 1024 is for programs that use select(2).
    def raise_file_limit
      soft, hard = Process.getrlimit(:NOFILE)
      wanted ||= hard
      Process.setrlimit(:NOFILE, wanted, hard) if soft < wanted
    rescue Errno::EINVAL
      retry if wanted > OPEN_MAX && (wanted = OPEN_MAX)
    rescue SystemCallError
      # Not permitted: the limit stays.
      nil
    end

    def refuse(name, message)
      raise ConfigurationError, "#{@configuration.source(name)}: #{message}"
    end
  end
end
