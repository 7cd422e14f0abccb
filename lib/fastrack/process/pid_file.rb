# frozen_string_literal: true

require_relative "../error"
require_relative "../log"

module Fastrack
  # The master's pid file. During an upgrade the old master's is renamed as Unicorn does it: `app.pid.oldbin` beside the new
  # one's `app.pid`.
  class PidFile
    SUFFIX = ".oldbin"

    # @return [Integer, nil] the pid in a file
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
      # It belongs to another user.
      true
    end

    # @return [String] absolute
    attr_reader :path

    # @param path [String]
    def initialize(path)
      # Absolute: the working directory may change, in at_exit hooks too.
      @path = File.expand_path(path)
      @name = @path
    end

    # Writes this process's pid.
    #
    # @raise [Error] when it is the file of another running process, or cannot be written
    def claim
      owner = self.class.read(@path)
      # rackup has already written it for this process.
      return if owner == Process.pid
      running = owner&.positive? && self.class.running?(owner)
      raise Error, "pid file #{@path} belongs to process #{owner}, which is running" if running

      Log.line("pid file #{@path}: replacing that of process #{owner}, which is gone") if owner
      write
    rescue SystemCallError => e
      raise Error, "pid file #{@path}: #{SystemCallError.new(nil, e.errno).message.downcase}"
    end

    # Writes it again if it is gone or empty.
    def restore_missing
      write if @name == @path && self.class.read(@path).nil?
    rescue SystemCallError => e
      Log.line("pid file #{@path}: #{e.message}")
    end

    # Renames it, for a new master to have the name.
    #
    # @raise [SystemCallError]
    def set_aside
      File.rename(@path, aside) if own?(@path)
      @name = aside
    end

    # Takes the name back.
    def take_back
      File.rename(aside, @path) if own?(aside)
      @name = @path
    rescue SystemCallError => e
      Log.line("pid file #{@path}: #{e.message}")
    end

    # Removes the old master's, in case that was killed.
    def remove_aside
      remove_file(aside)
    end

    # Removes it, unless another process has taken it over.
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

    # By renaming, so that nobody reads half a number.
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
      # It is already gone, or we may not remove it.
      nil
    end
  end

  # Keeps the children of a process from removing its pid files. Their at_exit hooks include those that it had before the
  # fork, and rackup's removes the file whichever process runs it.
  module PidFileGuard
    @paths = []

    class << self
      # @param paths [Array<String>] absolute
      def install(paths)
        @paths = paths
        @owner = Process.pid
        File.singleton_class.prepend(self) unless paths.empty? || File.singleton_class < self
      end

      # @param paths [Array<String, #to_path>]
      # @return [Array] those that this process may remove
      def removable(paths)
        return paths if Process.pid == @owner

        paths.reject { |path| @paths.include?(File.absolute_path(path)) }
      end
    end

    %i[unlink delete].each { |name| define_method(name) { |*paths| super(*PidFileGuard.removable(paths)) } }
  end
end
