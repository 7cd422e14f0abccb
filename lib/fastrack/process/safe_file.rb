# frozen_string_literal: true

require "fcntl"

module Fastrack
  # Opens, makes, renames and removes the files of the master: logs, pid file, state file, sockets.
  #
  # The user of the app may lay out links and files in folders where he may write. A master that root runs acts on such a path with
  # that user's effective ids, so that the kernel refuses what is not his. Root acts as root where each folder on the way is root's
  # and the user may not write to it; then nobody can change where the path leads between two calls. Masters of other users, and
  # root without the option User, act as themselves. No file waits for the reader of a FIFO.
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
      # @return [AppUser, nil] for whose sake root is careful
      attr_reader :app_user

      # @param user [UserGroup, nil] of the option User
      # @raise [SystemCallError] if the user's groups cannot be had
      def user=(user)
        @name = user&.name
        @app_user = careful?(user) ? AppUser.new(user.name, user.uid, user.gid) : nil
      end

      # Calls the block with the ids that are right for the path.
      #
      # @param follow [Boolean] whether the file itself may be a link of root's
      # @yieldparam found [String, Integer] the path; where root acts, without links. With `follow` also the number of a descriptor
      #   of this process, to which /dev/stdout leads, for example.
      # @return what the block returns
      # @raise [SystemCallError] Refused, for example
      def at(path, follow: false)
        path = File.expand_path(path)
        return yield(path) unless app_user && Process.euid.zero?

        app_user.at(path, follow) do |found|
          yield found
        rescue Errno::EACCES
          raise if Process.euid.zero?

          raise Refused, "permission denied to user #{@name}, who can change where the path leads"
        end
      end

      # Opens a log, and makes it if there is none.
      #
      # @param owner [Array(Integer, Integer), nil] user and group that root gives a new log to
      # @param fifo [Boolean] whether it may be a FIFO that nobody reads
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

      # Writes a file anew.
      #
      # @param mode [Integer] of one that is made
      # @raise [SystemCallError]
      def write(path, text, mode)
        at(path) do |found|
          File.unlink(found) if app_user && (File.exist?(found) || File.symlink?(found))
          how = app_user ? File::EXCL : File::TRUNC | File::NONBLOCK
          File.open(found, File::WRONLY | File::CREAT | how, mode) { |file| file.write(text) }
        end
      end

      # Gives a unix socket its name and the mode of its file. Before listen(2), so that no client meets another mode: umask(2) would
      # affect other threads' files.
      #
      # @param socket [Socket]
      # @raise [SystemCallError]
      def bind(socket, path, mode)
        at(path) do
          # By its own path, which getsockname(2) tells the app and a new master.
          socket.bind(Addrinfo.unix(path))
          File.chmod(mode, path)
        end
      end

      # @return [String] what is wrong, for a message
      def reason(error)
        case error
        when Refused then error.message
        when Errno::ENXIO then "it is a FIFO that nobody reads, or a socket"
        else SystemCallError.new(nil, error.errno).message.downcase
        end
      end

      private

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
        # Also for reading it waits for no reader, who may come and go.
        access = fifo && File.pipe?(path) ? File::RDWR | File::APPEND : APPEND
        # A link that leads nowhere yet.
        create = File.exist?(path) ? 0 : File::CREAT
        file = File.new(path, access | create | File::NONBLOCK)
        file.fcntl(Fcntl::F_SETFL, file.fcntl(Fcntl::F_GETFL) & ~File::NONBLOCK)
        file
      end

      # The same file by an object with the path that was asked for, which may lead elsewhere at the next rotation. Nothing is opened
      # by O_PATH.
      def named(path, file)
        File.new(path, O_PATH | APPEND).tap { |other| Fastrack.replace_file(other.fileno, file.fileno) }
      ensure
        file.close
      end
    end
  end
end
