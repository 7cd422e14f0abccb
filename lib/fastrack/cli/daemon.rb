# frozen_string_literal: true

module Fastrack
  # Moves the server into the background. The command waits until it has started: errors appear on the terminal and in the
  # exit status.
  class Daemon
    STARTED = "started"

    # Returns in another process, without a terminal. The calling one exits when that has started or failed.
    #
    # @return [Daemon]
    def self.detach
      reader, writer = IO.pipe
      wait_for(reader, writer) if fork
      reader.close
      Process.setsid
      # A session leader could get a terminal again by opening one.
      exit!(0) if fork
      $stdin.reopen(File::NULL)
      new(writer)
    end

    # Exits without at_exit hooks: they are the server's.
    def self.wait_for(reader, writer)
      writer.close
      # Not to the end of file: a process that the app has forked may keep the pipe open.
      exit!(reader.read(STARTED.bytesize) == STARTED ? 0 : 1)
    end
    private_class_method :wait_for

    # @param writer [IO] to the waiting process
    def initialize(writer)
      @writer = writer
    end

    # Lets the waiting process exit with 0.
    def started
      @writer.write(STARTED)
    rescue SystemCallError
      # It was killed.
      nil
    ensure
      @writer.close
    end
  end
end
