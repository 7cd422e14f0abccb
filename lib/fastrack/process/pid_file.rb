# frozen_string_literal: true

require_relative "../error"
require_relative "../log"

module Fastrack
  # The file that tells a master's pid. While another master takes over, the old one's has a name of its own, as Unicorn's
  # users know it: `app.pid.oldbin` beside the new one's `app.pid`.
  class PidFile
    SUFFIX = ".oldbin"

    # @return [Integer, nil] the pid in a file; nil where there is none
    def self.read(path)
      Integer(File.read(path), 10, exception: false)
    rescue SystemCallError
      nil
    end

    # @return [Boolean]
    def self.running?(pid)
      Process.kill(0, pid)
      true
    rescue Errno::ESRCH, RangeError
      false
    rescue SystemCallError
      # It is another user's.
      true
    end

    # @return [String] absolute
    attr_reader :path

    # @param path [String]
    def initialize(path)
      # Folders change, for at_exit hooks too.
      @path = File.expand_path(path)
      @name = @path
    end

    # Takes the file for this process.
    #
    # @raise [Error] when another process that runs has it, or it cannot be written
    def claim
      owner = self.class.read(@path)
      # rackup has written it for this process already.
      return if owner == Process.pid
      raise Error, "pid file #{@path}: process #{owner} has it, and runs" if owner&.positive? && self.class.running?(owner)

      Log.line("pid file #{@path}: replacing what process #{owner} has left there") if owner
      write
    rescue SystemCallError => e
      raise Error, "pid file #{@path}: #{SystemCallError.new(nil, e.errno).message.downcase}"
    end

    # Writes it anew where it has gone, or has lost its text, while nobody else has it.
    def keep
      write if @name == @path && self.class.read(@path).nil?
    rescue SystemCallError => e
      Log.line("pid file #{@path}: #{e.message}")
    end

    # Leaves the name to another master.
    #
    # @raise [SystemCallError]
    def set_aside
      File.rename(@path, aside) if own?(@path)
      @name = aside
    end

    # Takes the name back.
    def restore
      File.rename(aside, @path) if own?(aside)
      @name = @path
    rescue SystemCallError => e
      Log.line("pid file #{@path}: #{e.message}")
    end

    # Removes what the master before has left, where it was killed.
    def remove_aside
      remove_file(aside)
    end

    # Removes it at the end, unless it is another's by now.
    def remove
      remove_file(@name) if own?(@name)
    end

    private

    def aside
      @path + SUFFIX
    end

    def own?(name)
      self.class.read(name) == Process.pid
    end

    # In one step, so that nobody reads half a number.
    def write
      temporary = "#{@path}.#{Process.pid}"
      File.write(temporary, "#{Process.pid}\n")
      File.rename(temporary, @path)
    rescue SystemCallError
      remove_file(temporary)
      raise
    end

    def remove_file(name)
      File.unlink(name)
    rescue SystemCallError
      # It is gone, or may not be removed; either way nothing is left to do.
      nil
    end
  end
end
