# frozen_string_literal: true

require_relative "../configuration/option"
require_relative "../configuration/plain_data"
require_relative "../process/safe_file"
require_relative "../process/start_command"

module Fastrack
  # A re-exec (USR2) by root, with an app's user. Root runs its own program again, but nothing that the app's user can write: where that user
  # can change a file of the program or the Gemfile, there is no re-exec. The ConfigFile is read by a process that is that user already, as at
  # HUP.
  module RootsProgram
    # What the old master knows of the start: users, and paths and addresses that the start has named.
    VARIABLE = "FASTRACK_ROOTS"

    # Files and folders that Bundler reads in the folder of a Gemfile.
    BUNDLERS = %w[. Gemfile.lock gems.locked .bundle .bundle/config].freeze

    # The users and names of the first start.
    #
    # @attr user [UserGroup]
    # @attr proxy_user [UserGroup, nil]
    # @attr names [Array<String>] see SafeFile.foreign=
    Start = Struct.new(:user, :proxy_user, :names)
    private_constant :BUNDLERS

    class << self
      # Called in a master of root's: from now on no library comes from a folder that the app's user can change.
      def keep_load_path = $LOAD_PATH.reject! { |folder| SafeFile.reach&.first([File.expand_path(folder)]) }

      # @param loaded [Boolean] whether the master itself has loaded the app
      # @param config_file [String, nil]
      # @return [String, nil] why root does not run its program again
      def obstacle(loaded:, config_file:)
        found = SafeFile.reach&.first(files(loaded, config_file)) or return
        "user #{SafeFile.user_name} can change #{found}, which root would run: stop and start the server"
      end

      # Called in the process that becomes a new master.
      #
      # @param configuration [Configuration] of the old master
      # @param names [Array<String>] see Start
      def pass_on(configuration, names)
        return unless SafeFile.app_user

        ENV[VARIABLE] = [PlainData.dump([configuration.user.to_a, configuration.proxy_user&.to_a, names])].pack("m0")
      end

      # @return [Start, nil] nil for a master that no root's has started
      def take_over(environment = ENV)
        text = environment.delete(VARIABLE)
        return if text.nil? || !Process.euid.zero?

        user, proxy_user, names = PlainData.load(text.unpack1("m0"))
        Start.new(UserGroup.new(*user).freeze, proxy_user && UserGroup.new(*proxy_user).freeze, names)
      end

      private

      def files(loaded, config_file)
        start = StartCommand.current
        [
          *start.programs, *bundlers(start), *start.load_path, *Gem.path,
          *([*%w[. config config.ru].map { |name| File.expand_path(name, start.directory) }, *config_file] if loaded),
          # A name without a folder is of Ruby's own.
          *$LOADED_FEATURES.select { |file| file.start_with?("/") }
        ]
      end

      # @return [Array<String>]
      def bundlers(start)
        gemfile = start.gemfile or return []
        [gemfile, *BUNDLERS.map { |name| File.expand_path(name, File.dirname(gemfile)) }, *start.environment["BUNDLE_APP_CONFIG"]]
      end
    end
  end
end
