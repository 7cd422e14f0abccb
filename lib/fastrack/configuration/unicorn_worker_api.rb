# frozen_string_literal: true

require_relative "../process/user_group"

module Fastrack
  # What the hooks of a unicorn.rb ask of their `worker`, besides its number.
  module HookWorker
    # In the place of the file by which Unicorn's master sees that a worker lives. Ours needs none, so there is nothing to
    # give to another user.
    module NoFile
      # @return [Integer] 0, as File#chown gives when nothing had to be done
      def self.chown(_uid, _gid)
        0
      end
    end

    def tmp
      NoFile
    end

    # Has this worker run as another user from now on.
    #
    # @param name [String]
    # @param group [String, nil]
    # @raise [ArgumentError] when there is no such user or group
    # @raise [SystemCallError] when this process may not
    def user(name, group = nil)
      Account.find(name, group).assume
    end
  end
end
