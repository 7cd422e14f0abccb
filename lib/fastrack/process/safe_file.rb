# frozen_string_literal: true

require "fcntl"

module Fastrack
  # How the master opens, makes, renames and removes files. One that root runs follows no link, and changes no file, by which the
  # user of its app would get what is not his: he may write to the folders of logs, pid files and sockets. Other masters have
  # nothing to give away, and follow all links. None waits for the reader of a FIFO.
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

    # A file's name in a folder that stays the same, whatever happens to the path.
    #
    # @attr name [String]
    # @attr pinned [Boolean] false: it is the path itself, and links are followed
    # @attr laid_by_root [Boolean] whether nobody else can have put the file there
    # @attr in_proc [Boolean] whether it is such as /proc/self/fd/1, which is a link
    Place = Struct.new(:name, :pinned, :laid_by_root, :in_proc) do
      # @return [Integer] for open(2)
      def nofollow = pinned && !in_proc ? File::NOFOLLOW : 0
    end

    # Linux has it, Ruby does not name it (open(2)).
    O_PATH = 0o10000000
    APPEND = File::WRONLY | File::APPEND
    private_constant :O_PATH, :APPEND

    class << self
      # @return [Integer, nil] number of the app's user: a link of anybody's may lead to what is his
      attr_accessor :user

      # @param last [Boolean] whether the file itself may be a link
      # @param user [Integer, nil] whom it will belong to
      # @yieldparam place [Place]
      # @return what the block returns
      # @raise [SystemCallError] Refused, for example
      def at(path, last: false, user: @user)
        path = File.expand_path(path)
        return yield(Place.new(path, false, false, false)) unless Process.euid.zero? && File.directory?("/proc/self/fd")

        folder, name, *facts = find(path, last, user)
        yield Place.new("/proc/self/fd/#{folder.fileno}/#{name}", true, *facts)
      ensure
        folder&.close
      end

      # Opens a log, and makes it if there is none.
      #
      # @param owner [Array(Integer, Integer), nil] user and group that it gets, unless somebody else may have chosen the file
      # @param fifo [Boolean] whether it may be a FIFO that nobody reads
      # @return [File]
      # @raise [SystemCallError]
      def append(path, owner = nil, fifo: false)
        user = owner ? owner.first : @user
        at(path, last: true, user: user) do |place|
          file, made = make_or_open(place, fifo)
          refuse_other_names(file, path, user) unless !place.pinned || place.laid_by_root || made
          give(file, owner) if owner && (made || !place.pinned || (place.laid_by_root && file.stat.file?))
          place.pinned ? named(path, file) : file
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
        at(path) do |place|
          File.unlink(place.name) if place.pinned && (File.exist?(place.name) || File.symlink?(place.name))
          how = place.pinned ? File::EXCL | File::NOFOLLOW : File::TRUNC | File::NONBLOCK
          File.open(place.name, File::WRONLY | File::CREAT | how, mode) { |file| file.write(text) }
        end
      end

      # Gives a unix socket its name and the mode of its file. Before listen(2), so that no client meets another mode: umask(2) would
      # affect other threads' files.
      #
      # @param socket [Socket]
      # @raise [SystemCallError]
      def bind(socket, path, mode)
        at(path) do |place|
          # The file gets it from the socket (`unix_bind_bsd` in the kernel): no other socket of root's has it.
          File.for_fd(socket.fileno, autoclose: false).chmod(0) if place.pinned
          socket.bind(Addrinfo.unix(path))
          next File.chmod(mode, path) unless place.pinned

          file = File.new(place.name, O_PATH | File::NOFOLLOW)
          raise Refused, "somebody has exchanged the socket" unless bound?(file.stat)

          File.chmod(mode, "/proc/self/fd/#{file.fileno}")
        ensure
          file&.close
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

      def bound?(stat) = stat.socket? && stat.owned? && stat.nlink == 1 && (stat.mode & 0o7777).zero?

      def find(path, last, user)
        require_relative "../native"
        found = Fastrack.find_place(path, last, user&.nonzero?)
        raise Refused, found if found.is_a?(String)
        raise SystemCallError.new(path, found) if found.is_a?(Integer)

        [IO.for_fd(found.shift), *found]
      end

      def make_or_open(place, fifo)
        made = File.new(place.name, APPEND | File::CREAT | File::EXCL) if place.pinned
        return [made, true] if made

        open_log(place, fifo, File::CREAT)
      rescue Errno::EEXIST
        open_log(place, fifo)
      end

      def open_log(place, fifo, create = 0)
        # Also for reading it waits for no reader, who may come and go.
        access = fifo && File.pipe?(place.name) ? File::RDWR | File::APPEND : APPEND
        file = File.new(place.name, access | create | File::NONBLOCK | place.nofollow)
        file.fcntl(Fcntl::F_SETFL, file.fcntl(Fcntl::F_GETFL) & ~File::NONBLOCK)
        [file, false]
      end

      # A further name may have been given to any file (link(2)).
      def refuse_other_names(file, path, user)
        return if file.stat.nlink < 2 || file.stat.uid == user&.nonzero?

        raise Refused, "#{path} is a further name (hard link) of a file that is not the user's"
      end

      def give(file, owner)
        file.chown(*owner) unless owner == file.stat.then { |stat| [stat.uid, stat.gid] }
      rescue Errno::EPERM
        # Only root may. It could be opened as it is.
        nil
      end

      # The same file by an object with the right path. Nothing is opened by O_PATH.
      def named(path, file)
        File.new(path, O_PATH | APPEND).tap { |other| Fastrack.replace_file(other.fileno, file.fileno) }
      ensure
        file.close
      end
    end
  end
end
