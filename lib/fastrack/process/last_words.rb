# frozen_string_literal: true

require_relative "../error"

module Fastrack
  # Why a worker or a new master could not start, or a worker not become the mold, in its own words. They come to the master by a pipe,
  # for the status: a log may be anywhere.
  module LastWords
    # The pipe's descriptor in a new master.
    VARIABLE = "FASTRACK_LAST_WORDS"

    # Characters. All that comes at once fits into what a pipe takes in one piece (PIPE_BUF, pipe(7)).
    LONGEST = 500

    # Processes whose words are kept until their end is seen: a worker's app may write there, too.
    KEPT = 1024

    class << self
      # In the master.
      def open
        @said = {}
        @reader, @writer = IO.pipe
      end

      def close
        [@reader, @writer].compact.each(&:close)
        @reader = @writer = nil
        close_old
      end

      # In a new master's children, and when the old master has ended.
      def close_old
        @old&.close
        @old = nil
      end

      # @return [IO, nil] for a new master
      attr_reader :writer

      # In a new master: the old one's pipe.
      #
      # @param environment [Hash, ENV]
      def take_over(environment = ENV)
        number = environment.delete(VARIABLE)
        @old = number && IO.for_fd(Integer(number, 10), "w").tap { |pipe| pipe.close_on_exec = true }
      rescue SystemCallError, ArgumentError
        # The variable is not ours, or the descriptor got lost.
        @old = nil
      end

      # In a worker.
      #
      # @param words [Exception, String]
      def say(words) = write(@writer, words)

      # In a new master.
      #
      # @param error [Exception]
      def say_to_old(error) = write(@old, error)

      # @param pid [Integer] of a process that has ended
      # @return [String, nil] what it has said
      def of(pid)
        text = @reader&.read_nonblock(65_536).to_s.force_encoding(Encoding::UTF_8).scrub("?")
        text.each_line(chomp: true) { |line| line.split(" ", 2).then { |name, words| @said[name.to_i] = words } }
        @said.shift while @said.size > KEPT
        @said.delete(pid)
      rescue IO::WaitReadable, EOFError, IOError
        @said.delete(pid)
      end

      private

      def write(pipe, words)
        text = words.is_a?(String) ? words : Error.reason(words)
        # Of an app that does not load, the backtrace is in the log.
        pipe&.write_nonblock("#{Process.pid} #{text.scrub("?").lines.first.to_s.chomp[0, LONGEST]}\n")
      rescue *Error::FOREIGN
        # It is full, or closed, or the message is none.
        nil
      end
    end
  end
end
