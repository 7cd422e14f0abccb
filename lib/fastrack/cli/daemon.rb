# frozen_string_literal: true

module Fastrack
  # A server that goes into the background once it has started. Until then the command that started it waits, so that its
  # exit status and the terminal tell what has gone wrong.
  class Daemon
    STARTED = "started"

    # Leaves the terminal: returns in another process, which no session of the user's ends. The one that called exits when
    # that one has started, or has failed.
    #
    # @return [Daemon]
    def self.detach
      reader, writer = IO.pipe
      wait_for(reader, writer) if fork
      reader.close
      Process.setsid
      # A session's leader could get a terminal again by opening one.
      exit!(0) if fork
      $stdin.reopen(File::NULL)
      new(writer)
    end

    # Without at_exit hooks, which are the server's.
    def self.wait_for(reader, writer)
      writer.close
      # No more than that: a process that the app has forked off meanwhile may keep the pipe open.
      exit!(reader.read(STARTED.bytesize) == STARTED ? 0 : 1)
    end
    private_class_method :wait_for

    # @param writer [IO] to the process that waits
    def initialize(writer)
      @writer = writer
    end

    # Says so to the process that waits.
    def started
      @writer.write(STARTED)
    rescue SystemCallError
      # Somebody has ended it.
      nil
    ensure
      @writer.close
    end
  end
end
