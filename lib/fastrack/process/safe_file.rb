# frozen_string_literal: true

require "fcntl"
require_relative "../text"
require_relative "users_reach"

module Fastrack
  # Opens, makes, renames and removes the files of the master: logs, pid file, state file, sockets.
  #
  # The app's user may make links and files in folders that are writable for that user, whether or not the master has code of the app's. A
  # root master acts on such a path with the app user's effective ids, so that the kernel refuses other users' files. Where root owns every
  # folder of the path and the app's user may not write to any, the master acts as root: nobody can change the path's target between two
  # calls. Other masters, and root without the option User, act as usual and follow links. No open waits for the reader of a FIFO.
  module SafeFile
    # Why a file is not touched.
    class Refused < Errno::EPERM
      # @return [String]
      attr_reader :message
      alias to_s message

      def initialize(message)
        super
        @message = message
      end
    end

    # Linux has it, Ruby does not name it (open(2)).
    O_PATH = 0o10000000
    APPEND = File::WRONLY | File::APPEND
    private_constant :O_PATH, :APPEND

    class << self
      # @return [AppUser, nil] the app's user, if the master is root
      attr_reader :app_user

      # @param user [UserGroup, nil] value of the option User
      # @raise [SystemCallError] if the user's groups cannot be read
      def user=(user)
        @user_name = user&.name
        @app_user = careful?(user) ? AppUser.new(user.name, user.uid, user.gid) : nil
        @reach = @app_user && UsersReach.new(user.uid, @app_user)
      end

      # @return [String, nil] the name of the app's user
      attr_reader :user_name

      # @return [UsersReach, nil] what the app's user can change, if the master is root
      attr_reader :reach

      # Paths and addresses that the app's user has named after the start. Root acts there as that user, whoever owns the folders.
      #
      # @param names [Array<String>]
      attr_writer :foreign

      # Calls the block with the app user's effective ids if that user has named the place.
      #
      # @param name [String] an absolute path, or an address
      def naming(name, &block) = foreign?(name) ? app_user.act(&block) : yield

      # Calls the block with the effective ids that are safe for the path.
      #
      # @param follow [Boolean] whether the file itself may be a link that root owns
      # @yieldparam found [String, Integer] the path, without links where root acts; with `follow` also a descriptor of this process, as for
      #   /dev/stdout
      # @return the result of the block
      # @raise [SystemCallError] Refused, for example
      def at(path, follow: false)
        path = Text.expand(path)
        return yield(path) unless app_user && Process.euid.zero?
        return app_user.act { yield(path) } if foreign?(path)

        app_user.at(path, follow) do |found|
          yield found.is_a?(String) ? Text.utf8(found) : found
        rescue Errno::EACCES
          raise if Process.euid.zero?

          raise Refused, "permission denied to user #{@user_name}, who can change where the path leads"
        end
      end

      # Calls the block to read a file for a process of another user: as root if the start has named it and only root can change where the path
      # leads, else with that user's effective ids.
      #
      # @param reader [UserGroup, nil] the other process's user
      # @yieldparam found [String] the path, without links where root reads
      # @return the result of the block
      # @raise [SystemCallError] Refused, for example
      def reading(path, reader)
        path = Text.expand(path)
        return yield(path) unless app_user && Process.euid.zero?

        user = reader_of(reader)
        found = app_user.at(path, true) { |place| place if Process.euid.zero? } unless foreign?(path)
        raise Refused, "it is no file" if found.is_a?(Integer)

        begin
          return user.at(found, true) { |place| read(place, reader) { |one| yield one } } if found
        rescue Errno::EACCES
          # Root without CAP_DAC_OVERRIDE, as in a container.
          nil
        end
        user.act { read(path, reader) { |one| yield one } }
      end

      # Opens a log, and makes the file if it is missing.
      #
      # @param owner [Array(Integer, Integer), nil] user and group of a new log that root makes
      # @param fifo [Boolean] whether the log may be a FIFO without a reader
      # @return [IO] a File with this path, except for a descriptor of this process
      # @raise [SystemCallError]
      def append(path, owner = nil, fifo: false)
        at(path, follow: true) do |found|
          next IO.for_fd(found, APPEND, autoclose: false).dup if found.is_a?(Integer)

          file, made = make_or_open(found, fifo)
          file.chown(*owner) if made && owner && Process.euid.zero?
          found == path ? file : named(path, file)
        rescue SystemCallError
          file&.close
          raise
        end
      end

      # Replaces a file's content.
      #
      # @param mode [Integer] mode of a new file
      # @raise [SystemCallError]
      def write(path, text, mode)
        at(path) do |found|
          File.unlink(found) if app_user && (File.exist?(found) || File.symlink?(found))
          how = app_user ? File::EXCL : File::TRUNC | File::NONBLOCK
          File.open(found, File::WRONLY | File::CREAT | how, mode) { |file| file.write(text) }
        end
      end

      # Binds a unix socket and sets the mode of its file. Comes before listen(2), so that no client meets another mode. umask(2) is not
      # used, because it would affect other threads' files.
      #
      # @param socket [Socket]
      # @raise [SystemCallError]
      def bind(socket, path, mode)
        at(path) do
          # Bound by the original path, because getsockname(2) tells it to the app and to a new master.
          socket.bind(Addrinfo.unix(path))
          File.chmod(mode, path)
        end
      end

      # @return [Boolean] whether root may run the file: the app's user cannot have changed it
      def roots?(path)
        return true unless app_user && Process.euid.zero?

        at(path, follow: true) do |found|
          Process.euid.zero? && found.is_a?(String) && File.stat(found).then { |stat| stat.uid.zero? && (stat.mode & 0o022).zero? }
        end
      rescue SystemCallError
        false
      end

      # @return [String] reason of the error, for a message
      def reason(error)
        case error
        when Refused then error.message
        when Errno::ENXIO then "it is a FIFO that nobody reads, or a socket"
        else SystemCallError.new(nil, error.errno).message.downcase
        end
      end

      # A File for the same descriptor with the original path, which may have another target at the next rotation. O_PATH opens no file.
      def named(path, file)
        File.new(path, O_PATH | APPEND).tap { |other| Fastrack.replace_file(other.fileno, file.fileno) }
      ensure
        file.close
      end

      private

      def foreign?(name) = app_user && Process.euid.zero? && @foreign&.include?(name)

      def reader_of(reader)
        @readers ||= {}
        @readers[reader] ||= reader.name == user_name ? app_user : AppUser.new(reader.name, reader.uid, reader.gid)
      end

      def read(place, reader)
        yield Text.utf8(place)
      rescue Errno::EACCES
        raise if Process.euid.zero?

        raise Refused, "permission denied to user #{reader.name}: root reads only files that the start has named, by a path that only root can change"
      end

      def careful?(user)
        return false unless user && !user.uid.zero? && Process.euid.zero?

        require_relative "../native"
        true
      end

      def make_or_open(path, fifo)
        [File.new(path, APPEND | File::CREAT | File::EXCL), true]
      rescue Errno::EEXIST
        [open_log(path, fifo), false]
      end

      def open_log(path, fifo)
        # Opened for reading, too, so that the open does not wait for a reader, and readers may come and go.
        access = fifo && File.pipe?(path) ? File::RDWR | File::APPEND : APPEND
        # A dangling link: the open makes its target.
        create = File.exist?(path) ? 0 : File::CREAT
        file = File.new(path, access | create | File::NONBLOCK)
        file.fcntl(Fcntl::F_SETFL, file.fcntl(Fcntl::F_GETFL) & ~File::NONBLOCK)
        file
      end
    end
  end
end
