# frozen_string_literal: true

require "etc"

module Fastrack
  # A user of this machine and a group, which workers become.
  class Account
    # @param user [String] a name
    # @param group [String, nil] a name; nil for the user's own group
    # @raise [ArgumentError] with what was expected
    def self.find(user, group = nil)
      entry = look_up("user", user) { Etc.getpwnam(user) }
      new(user, entry.uid, group ? look_up("group", group) { Etc.getgrnam(group) }.gid : entry.gid)
    end

    def self.look_up(kind, name)
      yield
    rescue ArgumentError
      raise ArgumentError, "a #{kind} of this machine, which has no #{name.inspect[0, 80]}"
    end
    private_class_method :look_up

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

    # Whether this process is that user already, or may become it: only root may.
    def attainable?
      Process.euid.zero? || (Process.euid == @uid && Process.egid == @gid)
    end

    # Makes this process the user's for good: its groups first, while it still may.
    #
    # @raise [SystemCallError]
    def assume
      return if Process.euid == @uid && Process.egid == @gid

      Process.initgroups(@name, @gid)
      Process::GID.change_privilege(@gid)
      Process::UID.change_privilege(@uid)
    end
  end
end
