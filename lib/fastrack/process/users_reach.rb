# frozen_string_literal: true

module Fastrack
  # The paths whose content the app's user can change: by writing to the file or folder, or by putting another one, or another link, into its
  # place. Fastrack asks as that user, so that groups and access control lists count.
  class UsersReach
    # @param uid [Integer]
    # @param user [AppUser]
    def initialize(uid, user)
      @uid = uid
      @user = user
    end

    # @param paths [Array<String>] absolute. Of a missing one, the nearest folder counts
    # @return [String, nil] the first path that the user can change
    def first(paths)
      @known = {}
      @user.act { paths.find { |path| changes?(existing(path)) } }
    end

    private

    def existing(path)
      path = File.dirname(path) until File.exist?(path) || File.symlink?(path) || path == "/"
      path
    end

    def changes?(path)
      return @known[path] if @known.key?(path)

      # A circle of links leads nowhere.
      @known[path] = false
      @known[path] = writes?(path) || replaces?(path)
    rescue SystemCallError
      # The user cannot reach the path.
      false
    end

    def writes?(path)
      found = File.stat(path)
      # A folder such as /tmp: whoever can create a file there can add one to a load path.
      found.uid == @uid || (Process.euid.zero? ? found.world_writable? : File.writable?(path))
    end

    def replaces?(path)
      folder = File.dirname(path)
      return false if folder == path

      entry = File.lstat(path)
      return true if entry.symlink? && changes?(File.expand_path(File.readlink(path), folder))

      (writes?(folder) && movable?(entry, File.stat(folder))) || replaces?(folder)
    end

    # In a sticky folder, such as /tmp, only an owner renames an entry.
    def movable?(entry, folder) = !folder.sticky? || [entry.uid, folder.uid].include?(@uid)
  end
end
