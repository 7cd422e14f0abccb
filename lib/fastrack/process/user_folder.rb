# frozen_string_literal: true

module Fastrack
  # The folder of a user's servers, for the sockets that no option names.
  module UserFolder
    # Root's folder, in which no other user can create files (SafeFile), and the parent of the other users' folders. TMPDIR is not used,
    # because an old master, a new one and a command may differ in it.
    ROOTS = "/run/fastrack"
    PARENT = "/tmp"

    module_function

    # @param user [Integer] an id
    # @return [String]
    def of(user) = user.zero? ? ROOTS : "#{PARENT}/fastrack-#{user}"

    # Whether nobody else can have created files in the folder.
    def own?(folder, user)
      found = File.lstat(folder)
      found.directory? && found.uid == user && (found.mode & 0o077).zero?
    rescue SystemCallError
      false
    end
  end
end
