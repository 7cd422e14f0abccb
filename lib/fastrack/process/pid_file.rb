# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "proc_stat"
require_relative "safe_file"

module Fastrack
  # The master's pid file. During an upgrade the old master's is renamed as Unicorn does it: `app.pid.oldbin` beside the new
  # one's `app.pid`.
  class PidFile
    SUFFIX = ".oldbin"

    # @return [Integer, nil] the pid in a file
    def self.read(path) = look(path) { |file| number(file) }

    # @yieldparam file [File]
    # @return what the block returns; nil without a file
    def self.look(path)
      SafeFile.at(path) do |found|
        file = open(found)
        yield file
      ensure
        file&.close
      end
    rescue SystemCallError
      nil
    end

    # @return [File]
    # @raise [SystemCallError] also if it is a FIFO or a device, of which there is no end
    def self.open(path)
      file = File.new(path, File::RDONLY | File::NONBLOCK)
      return file if file.stat.file? || file.stat.directory?

      file.close
      raise SafeFile::Refused, "it is no regular file"
    end

    # @return [Integer, nil] nil if it is another file, of which there is no need to read more than a number takes
    def self.number(file) = Integer(file.read(64), 10, exception: false)

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

    # @return [Integer, nil] the master that the file is of: a process that has it locked, or, where the file system has no locks, one
    #   with a master's title that is older than the file, and belongs to the file's owner. A number alone names any process.
    def self.owner(path)
      look(path) do |file|
        pid = number(file)
        pid if pid&.positive? && running?(pid) && (locked_by?(pid, file) || titled?(pid, file))
      end
    end

    # See proc(5). Devices are left out: some file systems show users another number.
    def self.locked_by?(pid, file)
      return false if file.flock(File::LOCK_SH | File::LOCK_NB)
      # Other systems have no such file. Whoever has the lock has written the pid.
      return true unless File.readable?("/proc/locks")

      File.foreach("/proc/locks").any? do |line|
        _, kind, _, _, holder, place = line.split
        kind == "FLOCK" && holder.to_i == pid && place.to_s.split(":").last.to_i == file.stat.ino
      end
    rescue SystemCallError
      false
    end

    def self.titled?(pid, file)
      MasterTitle.of?(pid) && !reused?(pid, file.mtime) && File.stat("/proc/#{pid}").uid == file.stat.uid
    rescue SystemCallError
      false
    end
    private_class_method :locked_by?, :titled?

    # Whether the process is younger than the file, so that the pid in it was another's.
    def self.reused?(pid, written)
      Time.now - ProcStat.age(pid) > written + 2
    rescue SystemCallError, NameError
      # Not Linux.
      false
    end

    # @return [String] absolute
    attr_reader :path

    # @param path [String]
    def initialize(path)
      # Absolute: the working directory may change, in at_exit hooks too.
      @path = Text.expand(path)
      @name = @path
    end

    # Writes this process's pid. As long as it runs it has the file locked: of several servers that start, one gets it.
    #
    # @raise [Error] when it is the file of another running process, or cannot be written
    def claim
      SafeFile.at(@path) { |found| claim_at(found) }
    rescue SystemCallError => e
      raise Error, "pid file #{@path}: #{SafeFile.reason(e)}"
    end

    # For children: only the master keeps it locked.
    def close = @lock&.close

    # Writes it again if it is gone or empty.
    def restore_missing
      SafeFile.at(@path) { |found| write(found) } if @name == @path && self.class.read(@path).nil?
    rescue SystemCallError => e
      Log.line("pid file #{@path}: #{SafeFile.reason(e)}", :error)
    end

    # Renames it, for a new master to have the name.
    #
    # @raise [SystemCallError]
    def set_aside
      SafeFile.at(@path) { |found| File.rename(found, found + SUFFIX) if own?(found) }
      @name = aside
    end

    # Takes the name back.
    def take_back
      SafeFile.at(aside) { |found| File.rename(found, found.delete_suffix(SUFFIX)) if own?(found) }
      @name = @path
    rescue SystemCallError => e
      Log.line("pid file #{@path}: #{SafeFile.reason(e)}", :error)
    end

    # Removes the old master's, in case that was killed.
    def remove_aside = quietly { SafeFile.at(aside) { |found| File.unlink(found) } }

    # Removes it, unless another process has taken it over.
    def remove = quietly { SafeFile.at(@name) { |found| File.unlink(found) if own?(found) } }

    private

    def aside = @path + SUFFIX

    def own?(path)
      file = self.class.open(path)
      self.class.number(file) == Process.pid
    rescue SystemCallError
      false
    ensure
      file&.close
    end

    def claim_at(path)
      old = open_old(path)
      owner = old && vacant(old, path)
      # A link that leads nowhere, or is not followed, is in the way.
      write(path, old || File.symlink?(path) ? :rename : :link)
      # rackup has already written it for this process.
      Log.line("pid file #{@path}: replacing that of process #{owner}, which is gone") if owner && owner != Process.pid
    rescue Errno::EEXIST
      old&.close
      retry
    ensure
      old&.close
    end

    # A link that the app's user may have put there is replaced. What it leads to is no pid file.
    def open_old(path)
      self.class.open(path) unless SafeFile.app_user && File.symlink?(path)
    rescue Errno::ENOENT
      nil
    end

    # @return [Integer, nil] the pid in an old file, whose process is gone
    def vacant(old, path)
      locked = lock(old)
      # Another server has replaced it just now.
      raise Errno::EEXIST unless File.identical?(old, path)

      owner = self.class.number(old)
      gone = owner.nil? || owner == Process.pid || !owner.positive? || !self.class.running?(owner) || self.class.reused?(owner, old.mtime)
      return owner if locked && gone

      raise Error, "pid file #{@path} belongs to #{owner ? "process #{owner}" : "a server"}, which is running"
    end

    # @return [Boolean] false if another server has locked it; true also where the file system has no locks
    def lock(file)
      file.flock(File::LOCK_EX | File::LOCK_NB) != false
    rescue SystemCallError
      true
    end

    # In one step, so that nobody reads half a number, and locked before.
    #
    # @param how [Symbol] :link fails if there is one by now
    def write(path, how = :rename)
      temporary = "#{path}.#{Process.pid}"
      # A killed process of that number may have left it.
      quietly { File.unlink(temporary) }
      file = File.new(temporary, File::WRONLY | File::CREAT | File::EXCL | File::NOFOLLOW).tap { |new| lock(new) }
      file.write("#{Process.pid}\n")
      file.flush
      move(how, temporary, path)
      @lock&.close
      @lock = file
    rescue SystemCallError
      file&.close
      raise
    ensure
      quietly { File.unlink(temporary) }
    end

    def move(how, temporary, name)
      File.public_send(how, temporary, name)
    rescue Errno::EPERM, Errno::EOPNOTSUPP
      # A file system without links.
      File.rename(temporary, name)
    end

    # It may be gone already, or not be this process's to remove.
    def quietly
      yield
    rescue SystemCallError
      nil
    end
  end
end
