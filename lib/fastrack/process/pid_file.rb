# frozen_string_literal: true

require "etc"
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

    # @return [Integer, nil] the process that the file is of; nil if that is gone, whatever process has its number by now
    def self.owner(path)
      File.open(path) do |file|
        pid = Integer(file.read, 10, exception: false)
        pid if pid&.positive? && running?(pid) && (!reused?(pid, file.mtime) || !file.flock(File::LOCK_SH | File::LOCK_NB))
      end
    rescue SystemCallError
      nil
    end

    # Whether the process is younger than the file, so that the pid in it was another's.
    def self.reused?(pid, written)
      ticks = File.read("/proc/#{pid}/stat").rpartition(")").last.split[19].to_i
      age = Process.clock_gettime(Process::CLOCK_BOOTTIME) - ticks.fdiv(Etc.sysconf(Etc::SC_CLK_TCK))
      Time.now - age > written + 2
    rescue SystemCallError, NameError
      # Not Linux.
      false
    end

    # @return [String] absolute
    attr_reader :path

    # @param path [String]
    def initialize(path)
      # Absolute: the working directory may change, in at_exit hooks too.
      @path = File.expand_path(path)
      @name = @path
    end

    # Writes this process's pid. As long as it runs it has the file locked: of several servers that start, one gets it.
    #
    # @raise [Error] when it is the file of another running process, or cannot be written
    def claim
      old = open_old
      owner = old && vacant(old)
      # A link that leads nowhere cannot be opened, and is in the way.
      write(old || File.symlink?(@path) ? :rename : :link)
      # rackup has already written it for this process.
      Log.line("pid file #{@path}: replacing that of process #{owner}, which is gone") if owner && owner != Process.pid
    rescue Errno::EEXIST
      old&.close
      retry
    rescue SystemCallError => e
      raise Error, "pid file #{@path}: #{SystemCallError.new(nil, e.errno).message.downcase}"
    ensure
      old&.close
    end

    # For children: only the master keeps it locked.
    def close
      @lock&.close
    end

    # Writes it again if it is gone or empty.
    def restore_missing
      write if @name == @path && self.class.read(@path).nil?
    rescue SystemCallError => e
      Log.line("pid file #{@path}: #{e.message}", :error)
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
      Log.line("pid file #{@path}: #{e.message}", :error)
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

    def open_old
      File.open(@path)
    rescue Errno::ENOENT
      nil
    end

    # @return [Integer, nil] the pid in an old file, whose process is gone
    def vacant(old)
      locked = lock(old)
      # Another server has replaced it just now.
      raise Errno::EEXIST unless File.identical?(old, @path)

      owner = Integer(old.read, 10, exception: false)
      gone = owner.nil? || owner == Process.pid || !owner.positive? || !self.class.running?(owner) || self.class.reused?(owner, old.mtime)
      return owner if locked && gone

      raise Error, "pid file #{@path} belongs to #{owner ? "process #{owner}" : "a server"}, which is running"
    end

    # @return [Boolean] false if another server has locked it; true where the file system has no locks, too
    def lock(file)
      file.flock(File::LOCK_EX | File::LOCK_NB) != false
    rescue SystemCallError
      true
    end

    # In one step, so that nobody reads half a number, and locked before.
    #
    # @param how [Symbol] :link fails if there is one by now
    def write(how = :rename)
      temporary = "#{@path}.#{Process.pid}"
      file = File.new(temporary, "w").tap { |new| lock(new) }
      file.write("#{Process.pid}\n")
      file.flush
      move(how, temporary)
      @lock&.close
      @lock = file
    rescue SystemCallError
      file&.close
      raise
    ensure
      remove_file(temporary)
    end

    def move(how, temporary)
      File.public_send(how, temporary, @path)
    rescue Errno::EPERM, Errno::EOPNOTSUPP
      # A file system without links.
      File.rename(temporary, @path)
    end

    def remove_file(name)
      File.unlink(name)
    rescue SystemCallError
      # It is already gone, or we may not remove it.
      nil
    end
  end
end
