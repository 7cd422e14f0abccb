# frozen_string_literal: true

require "etc"

module Fastrack
  # The user and group that workers run as.
  class UserGroup
    # @param user [String] a name
    # @param group [String, nil] a name; nil: the user's primary group
    # @raise [ArgumentError] with what was expected
    def self.find(user, group = nil)
      missing = "user"
      entry = Etc.getpwnam(user)
      missing = "group"
      new(user, entry.uid, group ? Etc.getgrnam(group).gid : entry.gid)
    rescue ArgumentError
      raise ArgumentError, "must be an existing #{missing}"
    end

    # @return [String]
    attr_reader :name
    # @return [Integer]
    attr_reader :uid, :gid

    def initialize(name, uid, gid)
      @name = name.dup.freeze
      @uid = uid
      @gid = gid
      freeze
    end

    # Whether this process may switch to the user. Only root may, unless it is that user already.
    def permitted?
      Process.euid.zero? || current?
    end

    # Switches this process to the user for good. Groups come first, while it still has the right to.
    #
    # @raise [SystemCallError]
    def switch
      return if current?

      Process.initgroups(@name, @gid)
      Process::GID.change_privilege(@gid)
      Process::UID.change_privilege(@uid)
    end

    private

    def current?
      Process.euid == @uid && Process.egid == @gid
    end
  end
end
