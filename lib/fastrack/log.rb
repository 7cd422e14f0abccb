# frozen_string_literal: true

module Fastrack
  # What the server has to say about itself, on stderr, and on stdout what Rhebok's users look for there. Nobody may read
  # it any more (a closed pipe, a full disk): that is no reason to stop serving.
  module Log
    # A stream to whose writers it makes no difference whether what they say is read.
    class Output
      # @yieldreturn [IO] asked anew each time: an app may put another in its place
      def initialize(&stream)
        @stream = stream
      end

      def puts(text)
        @stream.call.puts(text)
      rescue SystemCallError, IOError
        nil
      end

      def flush
        @stream.call.flush
      rescue SystemCallError, IOError
        discard
      end

      private

      # What Ruby has buffered and cannot write: as long as it is there, fork(2) fails, which Ruby flushes for.
      def discard
        stream = @stream.call
        descriptor = IO.for_fd(stream.fileno, "w", autoclose: false)
        copy = descriptor.dup
        descriptor.reopen(File::NULL, "w")
        stream.flush
      rescue SystemCallError, IOError
        nil
      ensure
        # To the same file as before, where there may be space by and by.
        copy && descriptor.reopen(copy)
        copy&.close
      end
    end

    STDOUT = Output.new { $stdout }
    STDERR = Output.new { $stderr }

    module_function

    # One line.
    def line(text)
      # In one write, so that lines of several processes do not mix.
      STDERR.puts("fastrack: #{text}\n")
    end

    # One line on stdout, there at once.
    def say(text)
      STDOUT.puts(text)
      STDOUT.flush
    end

    # Writes out what Ruby has buffered for stdout and stderr, the app's output included.
    def flush
      [STDOUT, STDERR].each(&:flush)
    end

    # An exception that nobody else will show, with its backtrace and causes.
    def exception(text, error)
      line("#{text}: #{error.full_message(highlight: false, order: :top)}".chomp)
    end
  end
end
