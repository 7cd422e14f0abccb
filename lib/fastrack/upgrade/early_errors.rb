# frozen_string_literal: true

require "tmpdir"
require_relative "../error"
require_relative "../text"

module Fastrack
  # What a program writes to stderr before Fastrack runs in it, such as Bundler's reason for its end. The master that starts the program gives
  # it a file for stderr. Fastrack in the program moves the text to the log and goes on there (.take_over). If the program ends before, the
  # master logs the text, and knows the reason.
  class EarlyErrors
    # The log's descriptor in the program.
    VARIABLE = "FASTRACK_STDERR"

    # Most bytes that are moved to the log.
    MOST = 65_536

    # Warnings of Ruby's and frames of a backtrace.
    NO_REASON = /warning: |\A\s*(?:from |\z)/i
    COLOR = /\e\[[\d;]*m/
    private_constant :NO_REASON, :COLOR

    class << self
      # @return [EarlyErrors] its file has no name. Without a folder for temporary files the program writes to the log
      def open
        new(File.open(Dir.tmpdir, File::RDWR | File::TMPFILE, 0o600))
      rescue SystemCallError, ArgumentError, NameError
        new(nil)
      end

      # Called in the program.
      #
      # @param environment [Hash, ENV] the variable is removed from it
      def take_over(environment = ENV)
        number = environment.delete(VARIABLE) or return
        log = IO.for_fd(Integer(number, 10), "w")
        copy = STDERR.dup.tap { |stream| stream.autoclose = false }
        STDERR.reopen(log)
        STDERR.sync = true
        file = File.for_fd(copy.fileno, "r+b")
        STDERR.write(file.pread(MOST, 0))
        # So that the master does not log it, too.
        file.truncate(0)
      rescue SystemCallError, ArgumentError, IOError
        # Nothing was written; or the variable is another program's.
        nil
      ensure
        [log, file].compact.each(&:close)
      end
    end

    # @param file [File, nil]
    def initialize(file)
      @file = file
    end

    # Called before exec(2).
    #
    # @return [Hash] redirections for Process.exec
    def redirections
      return {} unless @file

      log = STDERR.dup
      ENV[VARIABLE] = log.fileno.to_s
      { log.fileno => log.fileno, 2 => @file.fileno }
    end

    # Logs the text of a program that has ended. The text may be of a process of the app's user.
    #
    # @return [String, nil] the reason, in one line
    def log
      lines = text.lines(chomp: true).map { |line| Text.printable(line.gsub(COLOR, "")) }
      lines.each { |line| Log::STDERR.puts(line) }
      lines.find { |line| !line.match?(NO_REASON) }
    ensure
      close
    end

    def close
      @file&.close
      @file = nil
    end

    private

    # @return [String] valid UTF-8
    def text
      Text.utf8(@file ? @file.pread(MOST, 0) : "").scrub("?")
    rescue SystemCallError, EOFError
      ""
    end
  end
end
