# frozen_string_literal: true

require "io/wait"
require_relative "../error"
require_relative "line_reader"

module Fastrack
  # The reason why a worker or a new master could not start, or why a worker did not become the mold. The process itself writes the reason
  # to a pipe of the master, which shows it in the status. A log would not do, because it may be anywhere.
  module LastWords
    # The pipe's descriptor in a new master.
    VARIABLE = "FASTRACK_LAST_WORDS"

    # Most characters of a reason. A line with so many characters is less than PIPE_BUF, so that one write is atomic (pipe(7)).
    LONGEST_REASON = 500

    # Most processes whose reasons are kept. A limit, because a worker's app may also write to the pipe.
    KEPT_REASONS = 1024

    # Most reads of the pipe in a row: what an honest pipe (64 KiB) holds.
    READS = 65_536 / LineReader::PIECE

    LINE = /\A(\d{1,10}) (.+)\z/
    private_constant :READS, :LINE

    class << self
      # Called in the master.
      #
      # @return [LastWords] self
      def open
        @said = {}
        @reader, @writer = IO.pipe
        @lines = LineReader.new(@reader)
        self
      end

      # Called in a process of the server's that has inherited the pipe.
      #
      # @param writer [IO]
      def inherit(writer)
        @writer = writer
      end

      def close
        [@reader, @writer].compact.each(&:close)
        @reader = @writer = nil
        close_old
      end

      # Called in forked processes of the server's: only the master reads.
      def forked
        @reader&.close
        @reader = nil
        close_old
      end

      # Called when the old master has ended.
      def close_old
        @old&.close
        @old = nil
      end

      # @return [IO, nil] the end of the pipe that a new master inherits
      attr_reader :writer

      # Called in a new master. Takes over the old master's pipe.
      #
      # @param environment [Hash, ENV]
      def take_over(environment = ENV)
        number = environment.delete(VARIABLE)
        @old = number && IO.for_fd(Integer(number, 10), "w").tap { |pipe| pipe.close_on_exec = true }
      rescue SystemCallError, ArgumentError
        # The variable is another program's, or the descriptor was closed.
        @old = nil
      end

      # Called in a worker.
      #
      # @param words [Exception, String]
      def say(words) = write(@writer, words)

      # Called in a new master.
      #
      # @param error [Exception]
      def say_to_old(error) = write(@old, error)

      # @param pid [Integer] of a process that has ended
      # @return [String, nil] the reason that the process has written
      def of(pid)
        READS.times do
          break unless @reader&.wait_readable(0)

          @lines.read.to_a.grep(LINE) { @said[$1.to_i] = $2[0, LONGEST_REASON] }
          @said.shift while @said.size > KEPT_REASONS
        end
        @said.delete(pid)
      rescue Errno::ENOMEM, Errno::ENOBUFS
        @said.delete(pid)
      end

      private

      def write(pipe, words)
        text = words.is_a?(String) ? words : Error.reason(words)
        # Only the first line, because the log has the backtrace.
        pipe&.write_nonblock("#{Process.pid} #{text.scrub("?").lines.first.to_s.chomp[0, LONGEST_REASON]}\n")
      rescue *Error::FOREIGN
        # The pipe is full or closed, or the exception has no message.
        nil
      end
    end
  end
end
