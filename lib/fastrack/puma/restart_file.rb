# frozen_string_literal: true

require_relative "../log"

module Fastrack
  # Restarts the server when a file is touched (plugin :tmp_restart).
  class RestartFile
    # Seconds between two looks.
    INTERVAL = 1

    # @return [Float] monotonic seconds when #step looks again
    attr_reader :due_at

    # @param path [String]
    # @param signal [#call] what restarts the server
    def initialize(path, signal)
      @path = File.expand_path(path)
      @name = path
      @signal = signal
      @seen = mtime
      @due_at = 0.0
    end

    # @param now [Float] monotonic seconds
    def step(now)
      return if now < @due_at

      @due_at = now + INTERVAL
      found = mtime
      return if found.nil? || found == @seen

      @seen = found
      signal = @signal.call
      Log.line("#{@name} was touched: restarting (#{signal})")
      Process.kill(signal, Process.pid)
    end

    private

    # A file that is gone restarts nothing.
    def mtime
      File.stat(@path).mtime
    rescue SystemCallError
      nil
    end
  end
end
