# frozen_string_literal: true

require_relative "../log"
require_relative "../text"

module Fastrack
  # Restarts the server when a file is touched (plugin :tmp_restart).
  class RestartFile
    # @return [Float] monotonic seconds when #step looks again
    attr_reader :due_at

    # @param path [String]
    # @param launcher [Launcher]
    def initialize(path, launcher)
      @path = Text.expand(path)
      @name = path
      @launcher = launcher
      @seen = mtime
      @due_at = 0.0
    end

    # Looks once a second.
    #
    # @param now [Float] monotonic seconds
    def step(now)
      return if now < @due_at

      @due_at = now + 1
      found = mtime
      return if found.nil? || found == @seen

      @seen = found
      Log.line("#{@name} was touched: restarting (#{@launcher.restart})")
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
