# frozen_string_literal: true

require_relative "../error"
require_relative "../log"
require_relative "proc_stat"
require_relative "safe_file"

module Fastrack
  # The master's pid file. During an upgrade the old master's file is renamed as under Unicorn: `app.pid.oldbin` beside the new master's
  # `app.pid`.
  class PidFile
    SUFFIX = ".oldbin"

    # @return [Integer, nil] the pid in a file
    def self.read(path) = look(path) { |file| number(file) }

    # @yieldparam file [File]
    # @return the result of the block; nil without a file
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
    # @raise [SystemCallError] also for a FIFO or a device, which have no end
    def self.open(path)
      file = File.new(path, File::RDONLY | File::NONBLOCK)
      return file if file.stat.file? || file.stat.directory?

      file.close
      raise SafeFile::Refused, "it is no regular file"
    end

    # @return [Integer, nil] nil if the file does not begin with a number
    def self.number(file) = Integer(file.read(64), 10, exception: false)

    # @return [Integer, nil] pid of the master that owns the file. The master has the file locked. Where the file system has no locks, a
    #   process counts that has a master's title, is older than the file, and belongs to the file's owner. The number alone is not enough,
    #   because pids are used again.
    def self.owner(path)
      look(path) do |file|
        pid = number(file)
        pid if pid&.positive? && ProcStat.exists?(pid) && (locked_by?(pid, file) || titled?(pid, file)) && believable?(pid, file)
      end
    end

    # Root signals no process of root's because a file of another user's has its number, unless the process has a master's title.
    def self.believable?(pid, file)
      return true if !Process.euid.zero? || file.stat.owned?

      MasterTitle.of?(pid) || ProcStat.users(pid).uniq == [file.stat.uid]
    rescue SystemCallError
      # Not Linux.
      true
    end

    # Reads /proc/locks, see proc(5). Device numbers are not compared, because some file systems show users another number.
    def self.locked_by?(pid, file)
      return false if file.flock(File::LOCK_SH | File::LOCK_NB)
      # Other systems have no such file. There the process with the lock has written the pid.
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
    private_class_method :locked_by?, :titled?, :believable?

    # Whether the process is younger than the file, so that the pid in the file was another process's.
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
      # Absolute, because the working directory may change, in at_exit hooks too.
      @path = Text.expand(path)
      @name = @path
    end

    # Writes this process's pid, and locks the file until the process ends. Of several servers that start at once, one gets the file.
    #
    # @raise [Error] when another running process owns the file, or the file cannot be written
    def claim
      SafeFile.at(@path) { |found| claim_at(found) }
    rescue SystemCallError => e
      raise Error, "pid file #{@path}: #{SafeFile.reason(e)}"
    end

    # Called in children: only the master keeps the lock.
    def close = @lock&.close

    # Writes the file again if it is missing or empty.
    def restore_missing
      SafeFile.at(@path) { |found| write(found) } if @name == @path && self.class.read(@path).nil?
    rescue SystemCallError => e
      Log.line("pid file #{@path}: #{SafeFile.reason(e)}", :error)
    end

    # Renames the file, so that a new master can use the name.
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

    # Removes the old master's file, in case the old master was killed.
    def remove_aside = quietly { SafeFile.at(aside) { |found| File.unlink(found) } }

    # Removes the file, unless another process has taken it over.
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
      # A dangling link, or a link that is not followed, is replaced as well.
      write(path, old || File.symlink?(path) ? :rename : :link)
      # No line if rackup has already written this process's pid.
      Log.line("pid file #{@path}: replacing that of process #{owner}, which is gone") if owner && owner != Process.pid
    rescue Errno::EEXIST
      old&.close
      retry
    ensure
      old&.close
    end

    # Opens the existing file. A link that the app's user may have made is not followed, because its target is no pid file.
    def open_old(path)
      self.class.open(path) unless SafeFile.app_user && File.symlink?(path)
    rescue Errno::ENOENT
      nil
    end

    # @return [Integer, nil] pid in an old file whose process has ended
    def vacant(old, path)
      locked = lock(old)
      # Another server has just replaced the file.
      raise Errno::EEXIST unless File.identical?(old, path)

      owner = self.class.number(old)
      gone = owner.nil? || owner == Process.pid || !owner.positive? || !ProcStat.exists?(owner) || self.class.reused?(owner, old.mtime)
      return owner if locked && gone

      raise Error, "pid file #{@path} belongs to #{owner ? "process #{owner}" : "a server"}, which is running"
    end

    # @return [Boolean] false if another server has locked the file; true also where the file system has no locks
    def lock(file)
      file.flock(File::LOCK_EX | File::LOCK_NB) != false
    rescue SystemCallError
      true
    end

    # Writes the pid by a rename or link of a locked temporary file, so that nobody reads half a number.
    #
    # @param how [Symbol] :link fails if the file exists
    def write(path, how = :rename)
      temporary = "#{path}.#{Process.pid}"
      # A killed process with the same pid may have left the temporary file.
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

    # Ignores errors: the file may be missing, or this process may not remove it.
    def quietly
      yield
    rescue SystemCallError
      nil
    end
  end
end
