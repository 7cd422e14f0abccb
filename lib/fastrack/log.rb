# frozen_string_literal: true

module Fastrack
  # What the server has to say about itself, on stderr; it is the user's log.
  module Log
    module_function

    # One line.
    def line(text)
      $stderr.write("fastrack: #{text}\n")
    rescue SystemCallError, IOError
      # Nobody reads the log any more (a closed pipe, a full disk): no reason to stop serving.
      nil
    end

    # Writes out what Ruby has buffered for stdout and stderr, the app's output included.
    def flush
      [$stdout, $stderr].each do |stream|
        stream.flush
      rescue SystemCallError, IOError
        # As above.
        nil
      end
    end

    # An exception that nobody else will show, with its backtrace and causes.
    def exception(text, error)
      line("#{text}: #{error.full_message(highlight: false, order: :top)}".chomp)
    end
  end
end
